"""What is put into a dict, a list or a `ModuleDict`, and so can come out of it again.

`self.nets[key] = FSDP(self.nets[key])`, then `for net in self.nets.values()`. Containers are told apart by the place
that makes them, and what is in them is not told apart at all, but for constant keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import libcst as cst

from codemods.tables.names import WRAPPER

from .definitions import last_name
from .program import ANY_KEY, Program
from .tree import Tree

Place = tuple[Tree, cst.BaseExpression]
"""An expression of the program."""

_DISPLAYS = (cst.List, cst.Tuple, cst.Set)
_MADE_BY = frozenset({"torch.nn.ModuleDict", "torch.nn.ModuleList", "torch.nn.Sequential"})
_BUILTINS = frozenset({"dict", "list", "reversed", "set", "sorted", "tuple"})
_ADDS = frozenset({"add", "append"})


@dataclass(frozen=True, slots=True)
class _Store:
    """`container[key] = value`, or `container.append(value)`."""

    tree: Tree
    container: cst.BaseExpression
    value: cst.BaseExpression
    has_key: bool
    key: object = None
    """Its value, where it is a literal."""


class Containers:
    """Answers for one program; `made` says where the value of an expression is made."""

    def __init__(self, program: Program, made: Callable[[Tree, cst.BaseExpression], list[Place]]) -> None:
        self._program = program
        self._made = made
        self._stores: dict[tuple[str, object], list[_Store]] = {}
        self._stores_of: dict[Tree, list[_Store]] = {}
        self._open: set[cst.CSTNode] = set()

    def contents(self, tree: Tree, container: cst.BaseExpression, key: object = None) -> Iterator[Place]:
        """The expressions that are put into a container, those under another constant key than `key` left out."""
        made = self._made(tree, container)
        for where, node in made:
            if node in self._open:
                continue  # `items = list(items)`: what is in it is found in what it was before
            self._open.add(node)
            try:
                yield from self._initial(where, node, key)
            finally:
                self._open.discard(node)
        mine = {node for _, node in made}
        for store in self._stores_named(last_name(container), ANY_KEY if key is None else key):
            if not _is_other(store.key, key) and self._is_same(tree, container, mine, store):
                yield store.tree, store.value

    def turns(self, tree: Tree, iterable: cst.BaseExpression, index: int) -> Iterator[Place]:
        """What `for x in iterable` binds; with an index, what the target at that place of a tuple is bound to."""
        if isinstance(iterable, cst.Call):
            yield from self._turns_of_call(tree, iterable, index)
            return
        made = self._made(tree, iterable)
        for where, node in made:
            if not _has_keys(self._library_name(where, node), node):
                yield from self._picked(self._elements(where, node), index)
        mine = {node for _, node in made}
        for store in self._stores_named(last_name(iterable), None):
            if not store.has_key and self._is_same(tree, iterable, mine, store):
                yield from self._picked(iter([(store.tree, store.value)]), index)

    def is_module_dict(self, tree: Tree, container: cst.BaseExpression) -> bool:
        """Whether items are attributes as well."""
        return any(
            self._library_name(where, node) == "torch.nn.ModuleDict" for where, node in self._made(tree, container)
        )

    def _turns_of_call(self, tree: Tree, call: cst.Call, index: int) -> Iterator[Place]:
        name = last_name(call.func)
        if isinstance(call.func, cst.Attribute) and name in {"items", "values"} and not call.args:
            if (name, index) in {("items", 1), ("values", -1)}:
                yield from self.contents(tree, call.func.value)
        elif isinstance(call.func, cst.Name) and name == "enumerate" and index == 1 and call.args:
            yield from self.turns(tree, call.args[0].value, -1)
        elif isinstance(call.func, cst.Name) and name == "zip" and 0 <= index < len(call.args):
            yield from self.turns(tree, call.args[index].value, -1)
        elif isinstance(call.func, cst.Name) and name in _BUILTINS - {"dict"} and call.args:
            yield from self.turns(tree, call.args[0].value, index)

    def _initial(self, tree: Tree, node: cst.CSTNode, key: object) -> Iterator[Place]:
        if isinstance(node, cst.Dict):
            for element in node.elements:
                if not isinstance(element, cst.DictElement):
                    yield from self.contents(tree, element.value, key)
                elif not _is_other(constant(element.key), key):
                    yield tree, element.value
        elif isinstance(node, cst.DictComp):
            yield tree, node.value
        else:
            yield from self._elements(tree, node, key)

    def _elements(self, tree: Tree, node: cst.CSTNode, key: object = None) -> Iterator[Place]:
        if isinstance(node, _DISPLAYS):
            for element in node.elements:
                if isinstance(element, cst.StarredElement):
                    yield from self.contents(tree, element.value)
                else:
                    yield tree, element.value
        elif isinstance(node, (cst.ListComp, cst.SetComp, cst.GeneratorExp)):
            yield tree, node.elt
        elif isinstance(node, cst.Call) and self._makes_container(tree, node):
            for argument in node.args:
                if argument.keyword is not None:
                    if key is None or argument.keyword.value == key:
                        yield tree, argument.value
                elif argument.star or last_name(node.func) != "Sequential":
                    yield from self.contents(tree, argument.value, key)
                else:
                    yield tree, argument.value

    def _picked(self, found: Iterator[Place], index: int) -> Iterator[Place]:
        for tree, value in found:
            if index < 0:
                yield tree, value
                continue
            for where, node in self._made(tree, value):
                if isinstance(node, (cst.Tuple, cst.List)) and index < len(node.elements):
                    yield where, node.elements[index].value

    def _makes_container(self, tree: Tree, call: cst.Call) -> bool:
        return self._library_name(tree, call) in _MADE_BY or (
            isinstance(call.func, cst.Name) and call.func.value in _BUILTINS
        )

    def _library_name(self, tree: Tree, node: cst.CSTNode) -> str | None:
        return self._program.symbols.dotted(tree, node.func) if isinstance(node, cst.Call) else None

    def _stores_named(self, name: str | None, key: object) -> list[_Store]:
        """What is stored into anything of this name, or of any name where models are wrapped: a short search.

        `key` is what `Program.filling` takes; what is stored under other keys may be among it.
        """
        if name is None:
            return []
        if (name, key) not in self._stores:
            wrapping = {tree.path for tree in self._program.mentioning(WRAPPER)}
            self._stores[name, key] = [
                store
                for tree in self._program.parsed({*self._program.filling(name, key), *wrapping})
                for store in self._stores_in(tree)
                if tree.path in wrapping or last_name(store.container) == name
            ]
        return self._stores[name, key]

    def _stores_in(self, tree: Tree) -> list[_Store]:
        if tree not in self._stores_of:
            self._stores_of[tree] = list(_stores_in(tree))
        return self._stores_of[tree]

    def _is_same(self, tree: Tree, container: cst.BaseExpression, made: set[cst.BaseExpression], store: _Store) -> bool:
        if isinstance(container, cst.Name) and isinstance(store.container, cst.Name) and store.tree is tree:
            name = container.value
            scope = tree.scope_of[container].lookup(name) if name == store.container.value else None
            if scope is not None and scope is tree.scope_of[store.container].lookup(name):
                return True
        return bool(made) and any(node in made for _, node in self._made(store.tree, store.container))


def _stores_in(tree: Tree) -> Iterator[_Store]:
    for assignment in tree.nodes(cst.Assign):
        for target in (target.target for target in assignment.targets):
            if isinstance(target, cst.Subscript) and len(target.slice) == 1:
                index = target.slice[0].slice
                key = constant(index.value) if isinstance(index, cst.Index) else None
                yield _Store(tree, target.value, assignment.value, isinstance(index, cst.Index), key)
    for call in tree.nodes(cst.Call):
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in _ADDS and len(call.args) == 1:
            yield _Store(tree, call.func.value, call.args[0].value, has_key=False)


def constant(node: cst.BaseExpression) -> object:
    """The value of a literal that can be a key; None for anything else."""
    return node.evaluated_value if isinstance(node, (cst.SimpleString, cst.Integer)) else None


def _is_other(stored: object, wanted: object) -> bool:
    return stored is not None and wanted is not None and stored != wanted


def _has_keys(library_name: str | None, node: cst.CSTNode) -> bool:
    """Whether iterating gives keys and not what is stored."""
    if isinstance(node, (cst.Dict, cst.DictComp)) or library_name == "torch.nn.ModuleDict":
        return True
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "dict"
