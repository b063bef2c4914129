"""Support functions in the user's own file, where only the wrap needs them and they are short."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import libcst as cst

from codemods.api import SUPPORT, Import
from codemods.tables.names import CONFIGS, PACKAGE

from .. import support
from ..pyanalysis.scopes import Binds
from ..pyanalysis.tree import Tree
from .imports import Tidied, is_bound, is_vocabulary
from .quotes import are_single, in_single_quotes

_LINES = 40
"""More than these are better kept in a file of their own."""

_SHORT = 17
"""The same for what is not about the wrap: it is read past on the way to what the file is for."""

_BESIDE_THE_WRAP = frozenset(
    {
        *("broadcast_unit", "initialize_unit", "policy_units", "post_order", "reset_unit", "units_by_size"),
        *("group_mesh", "hsdp_mesh_from_groups", "mesh_of_group", "mesh_over_group", "node_mesh", "replicate_mesh"),
        *("first_dimension", "strategy_mesh"),
    }
)
"""What a person writes next to the calls of `fully_shard`: which modules become units, over what, and their values."""


@dataclass(frozen=True, slots=True)
class OwnText:
    """A file's new text with the functions in it, and what they import."""

    text: str
    imports: frozenset[Import]


def own_text(tidied: Tidied, is_shared: bool) -> OwnText | None:
    """The functions put above what uses them, beside others; None where they need a file of their own.

    With `is_shared` there is such a file, for this program or another one of the run: it takes all but what belongs to
    the wrap.
    """
    asked = tidied.support
    names = asked.keys()
    if not names or any(map(is_vocabulary, names)):
        return None
    needed = support.cut(asked)
    length = sum(len(each.text.splitlines()) + 2 for each in needed) - 2
    if not all(_is_function(each.text) for each in needed):
        return None
    if not is_annotated([tidied.tree]):
        needed = [support.unannotated(each) for each in needed]
    body = "\n\n\n".join(each.text for each in needed)
    wanted = {item for each in needed for item in support.imports_of(each)}
    renamed = any(item.alias for item in tidied.additions if item.module == SUPPORT)
    limit = _LINES if names <= _BESIDE_THE_WRAP else 0 if is_shared else _SHORT
    names_fsdp1 = any(item.module == PACKAGE and item.name in CONFIGS for item in wanted)
    if (
        renamed
        or names_fsdp1
        or length > limit
        or _binds_otherwise(tidied.tree, {each.name for each in needed}, wanted)
    ):
        return None
    tree = tidied.tree
    user = _first_user(tree, names)
    if user is None:
        return None
    body = in_single_quotes(body) if are_single(tree) else body
    indented = "\n".join(_in_steps_of(line, tree.module.default_indent) for line in body.split("\n"))
    text = (indented + "\n\n\n").replace("\n", tree.newline)
    at = _start(tree, _below_definitions(tree, user))
    if not any(map(_is_definition, tree.module.body[: tree.module.body.index(user)])):
        text = tree.newline * (2 - _blank_lines(tree.text[:at].replace(tree.newline, "\n"))) + text
    return OwnText(tree.text[:at] + text + tree.text[at:], frozenset(wanted))


def is_annotated(trees: Iterable[Tree]) -> bool:
    """Whether half of the functions, or more, say what they take or give."""
    functions = [each for tree in trees for each in tree.nodes(cst.FunctionDef)]
    said = sum(
        each.returns is not None or any(param.annotation is not None for param in each.params.params)
        for each in functions
    )
    return said * 2 >= len(functions)


def _is_function(text: str) -> bool:
    """Whether it is a function, or a name with an underscore that only functions keep something in."""
    return all(isinstance(node, ast.FunctionDef) or _is_kept(node) for node in ast.parse(text).body)


def _is_kept(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict) and not node.value.keys


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


def _below_definitions(tree: Tree, user: cst.CSTNode) -> cst.CSTNode:
    """The user itself, if it is a definition too; else what stands below the last definition above it, or import."""
    body = tree.module.body
    above = body[: body.index(user)] if not _is_definition(user) else []
    for is_one in (_is_definition, _is_import):
        last = next((i for i in reversed(range(len(above))) if is_one(above[i])), None)
        if last is not None:
            return body[last + 1]
    return user


def _blank_lines(above: str) -> int:
    """How many blank lines end a text, of the two that stand above a function."""
    return min(len(above) - len(above.rstrip("\n")) - 1, 2)


def _is_definition(statement: cst.CSTNode) -> bool:
    return isinstance(statement, (cst.FunctionDef, cst.ClassDef))


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
