"""Support functions in the user's own file, where only the wrap needs them and they are short."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import libcst as cst

from codemods.api import SUPPORT, Import
from codemods.tables.names import CONFIGS, PACKAGE

from .. import support
from ..pyanalysis.scopes import Binds
from ..pyanalysis.tree import Tree
from .imports import Tidied, is_bound, is_vocabulary, puts_off_torch
from .quotes import are_single, in_single_quotes

_LINES = 40
"""More than these are better kept in a file of their own."""

_SHORT = 30
"""The same for what is not about the wrap: it is read past on the way to what the file is for."""

BESIDE_THE_WRAP = frozenset(
    {
        *(
            "broadcast_unit",
            "cast_at_root",
            "initialize_unit",
            "policy_units",
            "post_order",
            "reset_unit",
            "units_by_size",
        ),
        *("group_mesh", "hsdp_mesh_from_groups", "mesh_of_group", "mesh_over_group", "node_mesh", "replicate_mesh"),
        *("first_dimension", "kwargs_over_group", "sharding_mesh", "strategy_kwargs", "strategy_mesh"),
    }
)
"""What a person writes next to the calls of `fully_shard`: which modules become units, over what, and their values."""


_NAMED_THROUGH = frozenset({"contextlib", "dataclasses", "functools", "itertools"})
"""Modules whose names are taken through them by a file that imports the module."""

_ANY: support.Asked = dict.fromkeys(support.MARKS, frozenset[str]())
"""What other files may say is not known here."""


@dataclass(frozen=True, slots=True)
class OwnText:
    """A file's new text with the functions in it, what they import, and which of those that it calls they are."""

    text: str
    imports: frozenset[Import]
    names: frozenset[str]


def own_text(tidied: Tidied, elsewhere: Collection[str], is_shared: bool, or_some: bool) -> OwnText | None:
    """The functions that this file alone needs put above what uses them, beside others; None where there are none.

    What is long has a file of its own, and so has what is needed `elsewhere`. With `is_shared` there is such a file for
    another program of the run: it takes all but what belongs to the wrap. With `or_some` it is there for what several
    files of this program need: then the short ones do not follow the long ones there.
    """
    if puts_off_torch(tidied.before):
        return None  # what they need would be imported at the top
    tree, asked = tidied.tree, _movable(tidied, elsewhere)
    own = _short(asked, asked.keys(), _SHORT, or_some=False)
    if not own:
        own = _short(asked, BESIDE_THE_WRAP & asked.keys(), _LINES, or_some)
        own |= _short(asked, asked.keys() - BESIDE_THE_WRAP, _SHORT, or_some)
    if is_shared:
        own = {name: given for name, given in own.items() if name in BESIDE_THE_WRAP}
    definitions = support.cut(own)
    if not is_annotated([tree]):
        definitions = [support.unannotated(each) for each in definitions]
    wanted = {_as_there(tree, item) for each in definitions for item in support.imports_of(each)}
    modules = {item: _module_there(tree, item) for item in wanted if item.alias and not item.name}
    wanted = {modules.get(item, item) for item in wanted}
    through = {item for item in wanted if _is_through_module(tree, item)}
    wanted = wanted - through | {Import(item.module) for item in through}
    called = {item.name: item.local for item in tidied.additions if item.module == SUPPORT}
    names = {called.get(each.name, each.name) for each in definitions}
    user = _first_user(tree, {called[name] for name in own if name in called}) if own else None
    if user is None or _binds_otherwise(tree, names, wanted):
        return None
    body = _renamed("\n\n\n".join(each.text for each in definitions), called)
    for item, there in modules.items():
        body = re.sub(rf"(?<![\w.]){item.local}(?=\.)", there.local, body)
    for item in through:
        body = re.sub(rf"(?<![\w.]){item.local}(?=\W)", f"{item.module}.{item.name}", body)
    body = in_single_quotes(body) if are_single(tree) else body
    indented = "\n".join(_in_steps_of(line, tree.indent) for line in body.split("\n"))
    fitted = support.fitted(indented, tree.width, tree.indent)
    text = (fitted + "\n\n\n").replace("\n", tree.newline)
    at = _start(tree, _below_definitions(tree, user))
    if at:
        text = tree.newline * (2 - _blank_lines(tree.text[:at].replace(tree.newline, "\n"))) + text
    return OwnText(tree.text[:at] + text + tree.text[at:], frozenset(wanted), frozenset(own))


def needed(asked: support.Asked) -> frozenset[str]:
    """The functions that calls need, with what those need themselves."""
    return frozenset(each.name for each in support.cut({**asked, **_ANY}))


def _movable(tidied: Tidied, elsewhere: Collection[str]) -> dict[str, frozenset[str]]:
    """What the file calls that can stand in it: functions, under one name, of which nothing else has a part."""
    if any(map(is_vocabulary, tidied.support)):
        return {}
    named = Counter(item.name for item in tidied.additions if item.module == SUPPORT)
    asked, parts = dict(tidied.support), {}
    for name, given in tidied.support.items():
        parts[name] = frozenset[str]() if name in support.MARKS else needed({name: given})
    kept = frozenset(elsewhere)
    while asked:
        staying = {
            name
            for name, given in asked.items()
            if named[name] > 1 or parts[name] & kept or not _are_functions({name: given})
        }
        if not staying:
            break
        kept = kept.union(*(parts[name] for name in staying))
        asked = {name: given for name, given in asked.items() if name not in staying}
    return asked


def _renamed(text: str, called: Mapping[str, str]) -> str:
    """Functions, and their calls of each other, by the names that the file has for them."""
    for name, local in called.items():
        if name != local:
            text = re.sub(rf"(?<![\w.]){name}(?=\()", local, text)
    return text


def _short(asked: support.Asked, names: Collection[str], limit: int, or_some: bool) -> dict[str, frozenset[str]]:
    """Those of the names, or `or_some` of them, where together they are not too long, and no other needs their parts.

    The shortest come first: so most stand where they are used.
    """
    chosen: dict[str, frozenset[str]] = {}
    for group in sorted(_apart(asked), key=_length):
        more = {**chosen, **group}
        if group.keys() <= set(names) and _length(more) <= limit:
            chosen = more
    return chosen if or_some or chosen.keys() == set(names) else {}


def _apart(asked: support.Asked) -> list[dict[str, frozenset[str]]]:
    """What is asked for in groups, no two of which have a part in common."""
    groups: list[dict[str, frozenset[str]]] = []
    for name, given in asked.items():
        group = {name: given}
        for other in [each for each in groups if not needed(each).isdisjoint(needed({name: given}))]:
            groups.remove(other)
            group |= other
        groups.append(group)
    return groups


def _length(asked: support.Asked) -> int:
    """How many lines functions are, with those between them."""
    return sum(len(each.text.splitlines()) + 2 for each in support.cut(asked)) - 2


def _are_functions(asked: support.Asked) -> bool:
    definitions = support.cut({**asked, **_ANY})
    wanted = [item for each in definitions for item in support.imports_of(each)]
    names_fsdp1 = any(item.module == PACKAGE and item.name in CONFIGS for item in wanted)
    return not names_fsdp1 and all(_is_function(each.text) for each in definitions)


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


def _as_there(tree: Tree, item: Import) -> Import:
    """`typing.Mapping` where the file has that: it says the same as that of `collections.abc`."""
    of_typing = Import("typing", item.name)
    return of_typing if item.module == "collections.abc" and is_bound(tree, of_typing) else item


def _module_there(tree: Tree, item: Import) -> Import:
    """`import torch.distributed as tdist`, where the top of the file has that."""
    if is_bound(tree, item):
        return item
    names = [name for name in tree.scope.bindings if is_bound(tree, replace(item, alias=name))]
    return replace(item, alias=names[0]) if names else item


def _is_through_module(tree: Tree, item: Import) -> bool:
    """`contextlib.contextmanager`, where the file has `import contextlib` and not the name."""
    is_plain = item.module in _NAMED_THROUGH and item.name and not item.alias
    return bool(is_plain) and not is_bound(tree, item) and is_bound(tree, Import(item.module))


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
