"""What stands around a node."""

from __future__ import annotations

import libcst as cst

from codemods.vocabulary import File, N


def enclosing(file: File, node: cst.CSTNode, *kinds: type[N]) -> N | None:
    """The innermost class, function, statement or whatever of these kinds around a node."""
    return next((outer for outer in file.ancestors(node) if isinstance(outer, kinds)), None)


def contains(file: File, outer: cst.CSTNode, node: cst.CSTNode) -> bool:
    """Whether a node is the other one, or stands in it."""
    return outer is node or any(outer is ancestor for ancestor in file.ancestors(node))
