"""Support functions in the user's own file, where only the wrap needs them and they are short."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass

import libcst as cst

from codemods.api import SUPPORT, Import

from .. import support
from ..pyanalysis.scopes import Binds
from ..pyanalysis.tree import Tree
from .imports import Tidied, is_bound

_LINES = 40
"""More than these are better kept in a file of their own."""

_BESIDE_THE_WRAP = frozenset(
    {"broadcast_unit", "initialize_unit", "policy_units", "post_order", "reset_unit", "units_by_size"}
)
"""What a person writes next to the calls of `fully_shard`: which modules become units, and their values."""


@dataclass(frozen=True, slots=True)
class OwnText:
    """A file's new text with the functions in it, and what they import."""

    text: str
    imports: frozenset[Import]


def own_text(tidied: Tidied) -> OwnText | None:
    """The functions put above the first statement that uses them; None where they need a file of their own."""
    asked = tidied.support
    names = asked.keys()
    if not names <= _BESIDE_THE_WRAP:
        return None
    needed = support.cut(asked)
    body = "\n\n\n".join(each.text for each in needed)
    wanted = {item for each in needed for item in support.imports_of(each)}
    renamed = any(item.alias for item in tidied.additions if item.module == SUPPORT)
    short = len(body.splitlines()) <= _LINES and all(_is_function(each.text) for each in needed)
    if renamed or not short or _binds_otherwise(tidied.tree, {each.name for each in needed}, wanted):
        return None
    user = _first_user(tidied.tree, names)
    if user is None:
        return None
    tree = tidied.tree
    indented = "\n".join(_in_steps_of(line, tree.module.default_indent) for line in body.split("\n"))
    text = (indented + "\n\n\n").replace("\n", tree.newline)
    at = _start(tree, user)
    return OwnText(tree.text[:at] + text + tree.text[at:], frozenset(wanted))


def _is_function(text: str) -> bool:
    return all(isinstance(node, ast.FunctionDef) for node in ast.parse(text).body)


def _binds_otherwise(tree: Tree, names: Collection[str], imports: Collection[Import]) -> bool:
    """Whether the top of the file means something else by a name that the functions define or use."""
    taken = tree.scope.bindings.keys()
    if not taken.isdisjoint(names):
        return True
    bindings = [each for item in imports for each in tree.scope.bindings.get(item.local, ())]
    others = any(item.local in taken and not is_bound(tree, item) for item in imports)
    return others or any(each.how is not Binds.IMPORT for each in bindings)


def _first_user(tree: Tree, names: Collection[str]) -> cst.CSTNode | None:
    """The first statement at the top of a file that uses one of the names."""
    return next(
        (
            statement
            for statement in tree.module.body
            if not _is_import(statement)
            and any(isinstance(node, cst.Name) and node.value in names for node in tree.inside(statement))
        ),
        None,
    )


def _is_import(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and all(
        isinstance(small, (cst.Import, cst.ImportFrom)) for small in statement.body
    )


def _start(tree: Tree, statement: cst.CSTNode) -> int:
    """Where a statement starts, with the comments and decorators above it."""
    at = tree.line_start(tree.span(statement)[0])
    while at:
        above = tree.line_start(at - 1)
        if not tree.text[above:at].startswith(("#", "@")):
            break
        at = above
    return at


def _in_steps_of(line: str, indent: str) -> str:
    stripped = line.lstrip(" ")
    return indent * ((len(line) - len(stripped)) // 4) + stripped
