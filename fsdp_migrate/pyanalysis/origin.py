"""One place where a value is made, and the order of such places."""

from __future__ import annotations

from typing import NamedTuple, cast

import libcst as cst

from .containers import Part
from .tree import Tree


class Origin(NamedTuple):
    """One place where a value is made: `node` in `tree`; no node when only run time knows."""

    tree: Tree
    node: cst.CSTNode | None
    reason: str = ""
    read: cst.Attribute | None = None
    """The attribute that only run time sets, where that is the reason."""


def in_order(found: object) -> tuple[object, ...]:
    """By the text: answers that are the same are in the same order."""
    if isinstance(found, Origin):
        where = found.tree.order[found.node] if found.node is not None else -1
        read = found.tree.order[found.read] if found.read is not None else -1
        return (str(found.tree.path), where, found.reason, read)
    if isinstance(found, Part):
        return (str(found.tree.path), found.tree.order[found.node], str(found.path))
    tree, node, *_, about = cast("tuple[Tree, cst.CSTNode, object]", found)
    return (str(tree.path), tree.order[node], str(about))
