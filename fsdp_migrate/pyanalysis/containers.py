"""What is put into a dict, a list or a `ModuleDict`, and so can come out of it again.

`self.nets[key] = Wrapper(self.nets[key])`, then `for net in self.nets.values()`. Containers are told apart by the place
that makes them, and what is in them is not told apart at all, but for constant keys and the elements of tuples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

from .definitions import last_name, returns, yields
from .program import ANY_KEY
from .scopes import EACH, Path
from .stores import table_owner
from .symbols import Defined
from .tree import Tree

if TYPE_CHECKING:
    from .origin import Origin
    from .values import Values

_DISPLAYS = (cst.List, cst.Tuple, cst.Set)
_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.GeneratorExp)
_MADE_BY = frozenset({"torch.nn.ModuleDict", "torch.nn.ModuleList", "torch.nn.Sequential"})
_SEQUENCES = frozenset({"filter", "iter", "list", "reversed", "set", "sorted", "tuple"})
"""Builtins that give the elements of their last argument."""
_IS_DICT = frozenset({"dict", "Dict", "OrderedDict", "UserDict", "defaultdict", "MutableMapping"})
_IS_LIST = frozenset({"list", "List", "UserList", "deque", "set", "tuple"})
"""Bases of the program's own containers."""
_DICTS = frozenset({"collections.OrderedDict", "types.MappingProxyType"})
_DEEPEST = 3
"""Steps into the pairs of pairs: `nets = dict(nets.values())` has no end."""


class Part(NamedTuple):
    """A part of the value of an expression."""

    tree: Tree
    node: cst.BaseExpression
    path: Path = ()


class _Adds(Enum):
    VALUE = "the value"
    EACH = "each element of the value"
    ITEMS = "the items of the value, under their keys"


@dataclass(frozen=True, slots=True, eq=False)
class _Store:
    """`container[key] = value`, or `container.append(value)`."""

    tree: Tree
    container: cst.BaseExpression
    value: cst.BaseExpression
    has_key: bool
    key: object = None
    """Its value, where it is a literal."""
    adds: _Adds = _Adds.VALUE


class Containers:
    """Answers for one program."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._program = values.program
        self._stores: dict[tuple[str | None, object], Mapping[cst.CSTNode, Sequence[_Store]]] = {}
        self._stores_of: dict[Tree, list[_Store]] = {}
        self._of_variables: dict[Tree, dict[tuple[str, Hashable], list[_Store]]] = {}
        self._place: dict[_Store, tuple[int, int]] = {}
        """Its file's in the program, and its own among the stores of the file."""
        self._nodes_of: dict[tuple[cst.BaseExpression, int], tuple[tuple[Origin, ...], frozenset[cst.CSTNode]]] = {}

    def items(self, tree: Tree, container: cst.BaseExpression, key: object = None, path: Path = ()) -> Iterator[Part]:
        """What `container[key]` can be, and the part of it; no key: under any. Other constant keys are left out."""
        rests = [o.node for o in self._values.origins(tree, container) if o.reason]  # the places in it are others
        for where, node in self._made(tree, container):
            yield from self._once(where, node, None if node in rests else key, path)
        for store in self._stores_into(tree, container, ANY_KEY if key is None else key):
            if not _is_other(store.key, key):
                yield from self._stored(store, key, path)

    def turns(self, tree: Tree, iterable: cst.BaseExpression, path: Path = ()) -> Iterator[Part]:
        """What `for x in iterable` binds, or a part of that."""
        made = self._made(tree, iterable)
        for where, node in made:
            yield from self._once(where, node, EACH, path, turns=True)
        for store in self._stores_into(tree, iterable, None):
            if not store.has_key and store.adds is not _Adds.ITEMS:
                yield from self._stored(store, None, path)

    def has_items_as_attributes(self, tree: Tree, container: cst.BaseExpression) -> bool:
        """Whether items can be attributes as well: a `ModuleDict`, or a dict of a class of the program's own."""
        return any(
            self._library_name(where, node) == "torch.nn.ModuleDict" or self._inherits(where, node, _IS_DICT)
            for where, node in self._made(tree, container)
        )

    def _inherits(self, tree: Tree, node: cst.CSTNode, builtin: frozenset[str]) -> bool:
        """Whether an object of one of the program's classes is such a container, too."""
        classes = self._values.objects.classes_made(tree, node)
        lineage = [owner for made in classes for owner in (made[1], *(b for _, b in self._values.objects.bases(*made)))]
        return any(last_name(base.value) in builtin for owner in lineage for base in owner.bases)

    def _made(self, tree: Tree, container: cst.BaseExpression) -> list[tuple[Tree, cst.CSTNode]]:
        found = self._values.origins(tree, container)
        return [(o.tree, o.node) for o in found if isinstance(o.node, (cst.BaseExpression, cst.Param))]

    def _once(self, tree: Tree, node: cst.CSTNode, key: object, path: Path, turns: bool = False) -> Iterable[Part]:
        """`items = list(items)`: what is in it is found in what it was before."""
        return self._values.ask(
            ("items", node, key, path, turns),
            lambda: self._turns_of(tree, node, path) if turns else self._items_of(tree, node, key, path),
        )

    def _turns_of(self, tree: Tree, node: cst.CSTNode, path: Path) -> Iterator[Part]:
        if isinstance(node, cst.Call):
            yield from self._turns_of_call(tree, node, path)
        elif not isinstance(node, (cst.Dict, cst.DictComp)):  # those give keys
            yield from self._items_of(tree, node, None, path)

    def _turns_of_call(self, tree: Tree, call: cst.Call, path: Path) -> Iterator[Part]:
        name, values = last_name(call.func), [argument.value for argument in call.args]
        if isinstance(call.func, cst.Attribute):
            owner = call.func.value
            if name == "values":
                yield from self.items(tree, owner, None, path)
            elif name == "items" and path[:1] == (1,):
                yield from self.items(tree, owner, None, path[1:])
            elif name == "copy":
                yield from self.turns(tree, owner, path)
        elif name == "enumerate" and values and path[:1] == (1,):
            yield from self.turns(tree, values[0], path[1:])
        elif name == "zip" and path and isinstance(path[0], int) and path[0] < len(values):
            yield from self.turns(tree, values[path[0]], path[1:])
        elif name == "map" and values:
            yield from self._results(tree, values[0], path)
        if (self._library_name(tree, call) or "").startswith("itertools.chain"):
            for value in values:
                yield from self.turns(tree, value, path)
        iterators = self._values.objects.methods_of(tree, call, "__iter__")
        for where, iterator in iterators:
            for value in returns(where, iterator):
                yield from self.turns(where, value, path)
        for where, function in [*self._values.functions(tree, call.func), *iterators]:
            for value in yields(where, function):
                yield Part(where, value, path)
            for value in yields(where, function, delegated=True):
                yield from self.turns(where, value, path)
        if not self._is_dict(tree, call) and self._library_name(tree, call) != "torch.nn.ModuleDict":
            yield from self._items_of(tree, call, None, path)

    def _results(self, tree: Tree, function: cst.BaseExpression, path: Path) -> Iterator[Part]:
        """What calling this gives."""
        for where, value in self._values.results(tree, function):
            yield Part(where, value, path)

    def _items_of(self, tree: Tree, node: cst.CSTNode, key: object, path: Path) -> Iterator[Part]:
        if isinstance(node, cst.Dict):
            for element in node.elements:
                if not isinstance(element, cst.DictElement):
                    yield from self.items(tree, element.value, key, path)
                elif not _is_other(constant(element.key), key):
                    yield Part(tree, element.value, path)
        elif isinstance(node, cst.DictComp):
            yield Part(tree, node.value, path)
        elif isinstance(node, _DISPLAYS):
            yield from self._elements(tree, node, key, path)
        elif isinstance(node, _COMPREHENSIONS):
            yield Part(tree, node.elt, path)
        elif isinstance(node, cst.BinaryOperation):  # a + b of lists, a | b of dicts
            yield from self.items(tree, node.left, None if isinstance(key, int) else key, path)
            yield from self.items(tree, node.right, None if isinstance(key, int) else key, path)
        elif isinstance(node, cst.Subscript) and any(isinstance(e.slice, cst.Slice) for e in node.slice):
            yield from self.items(tree, node.value, None, path)
        elif isinstance(node, cst.Param):
            for where, value in self._values.callers.starred(tree, node, key):
                yield Part(where, value, path)
        elif isinstance(node, (cst.Attribute, cst.Call)) and (owner := table_owner(node)) is not None:
            objects = self._values.objects
            is_any = not isinstance(key, str)
            found = objects.attributes(tree, owner, node) if is_any else objects.named(tree, owner, str(key), node)
            yield from (Part(part.tree, part.node, (*part.path, *path)) for part in found)
        elif isinstance(node, cst.Call):
            yield from self._items_of_call(tree, node, key, path)

    def _elements(self, tree: Tree, node: cst.BaseExpression, key: object, path: Path) -> Iterator[Part]:
        assert isinstance(node, _DISPLAYS)
        starred = any(isinstance(element, cst.StarredElement) for element in node.elements)
        is_exact = isinstance(node, cst.Tuple) and isinstance(key, int) and not starred
        for index, element in enumerate(node.elements):
            if isinstance(element, cst.StarredElement):
                yield from self.turns(tree, element.value, path)
            elif not is_exact or key in {index, index - len(node.elements)}:
                yield Part(tree, element.value, path)

    def _items_of_call(self, tree: Tree, call: cst.Call, key: object, path: Path) -> Iterator[Part]:
        name = last_name(call.func)
        if self._program.library.gives_wrappers(self._library_name(tree, call) or ""):
            yield Part(tree, call.func, path)
        elif isinstance(call.func, cst.Name) and name in _SEQUENCES and call.args:
            yield from self.turns(tree, call.args[-1 if name == "filter" else 0].value, path)
        elif isinstance(call.func, cst.Name) and name == "map" and call.args:
            yield from self._results(tree, call.args[0].value, path)
        elif isinstance(call.func, cst.Attribute) and name == "copy" and not call.args:
            yield from self.items(tree, call.func.value, key, path)
        elif isinstance(call.func, cst.Name) and name in {"zip", "enumerate"}:
            yield from self.turns(tree, call, path)
        elif isinstance(call.func, cst.Attribute) and name == "popitem":
            yield from self.items(tree, call.func.value, None, path)
        else:
            yield from self._items_of_library(tree, call, key, path)

    def _items_of_library(self, tree: Tree, call: cst.Call, key: object, path: Path) -> Iterator[Part]:
        library, values = self._library_name(tree, call), [argument.value for argument in call.args]
        is_dict = self._is_dict(tree, call)
        if is_dict or library in _MADE_BY:
            for argument in call.args:
                if argument.keyword is not None:
                    if key is None or argument.keyword.value == key:
                        yield Part(tree, argument.value, path)
                elif argument.star or library != "torch.nn.Sequential":
                    yield from self.items(tree, argument.value, key, path)
                    if is_dict and len(path) < _DEEPEST:  # it may be a list of pairs
                        yield from self.turns(tree, argument.value, (1, *path))
                else:
                    yield Part(tree, argument.value, path)
        elif library == "collections.defaultdict" and values:
            yield Part(tree, values[0], path)  # no value, but the place that makes what stores go into
            for value in values[1:]:
                yield from self.items(tree, value, key, path)
        elif values and (library == "collections.deque" or self._inherits(tree, call, _IS_LIST)):
            yield from self.turns(tree, values[0], path)
        elif isinstance(call.func, cst.Attribute) and call.func.attr.value == "fromkeys" and len(values) == 2:
            yield Part(tree, values[1], path)
        elif isinstance(key, int) and values:
            yield from (Part(tree, value, path) for value in self._values.objects.element(tree, call, key))

    def _is_dict(self, tree: Tree, call: cst.Call) -> bool:
        is_builtin = isinstance(call.func, cst.Name) and call.func.value == "dict"
        return is_builtin or self._library_name(tree, call) in _DICTS or self._inherits(tree, call, _IS_DICT)

    def _stored(self, store: _Store, key: object, path: Path) -> Iterator[Part]:
        if store.adds is _Adds.VALUE:
            yield Part(store.tree, store.value, path)
            return
        is_each = store.adds is _Adds.EACH  # `a.extend(b)`, and `b.extend(a)`
        yield from self._values.ask(
            ("stored", store.value, key, path, store.adds),
            lambda: (
                self.turns(store.tree, store.value, path) if is_each else self.items(store.tree, store.value, key, path)
            ),
        )

    def _library_name(self, tree: Tree, node: cst.CSTNode) -> str | None:
        return self._program.symbols.dotted(tree, node.func) if isinstance(node, cst.Call) else None

    def _stores_into(self, tree: Tree, container: cst.BaseExpression, key: object) -> list[_Store]:
        """What is stored into a container: under its name in its scope, or where it is seen to be the same.

        That is looked for in anything of its name, and of any name where models are wrapped. `key` is what
        `Program.filling` takes; what is stored under other keys may be among it.
        """
        found = set(self._in_variable(tree, container, key))
        made = self._nodes(tree, container)
        if made:
            found |= self._values.test(lambda: self._stored_elsewhere(_name(container), key, made), set)
        return sorted(found, key=self._place.__getitem__)

    def _in_variable(self, tree: Tree, container: cst.BaseExpression, key: object) -> Sequence[_Store]:
        variable, name = self._variable(tree, container), _name(container)
        if variable is None:
            return ()
        filling = self._program.filling(name, key)
        trees = dict.fromkeys([tree, *self._program.parsed(filling)])
        return [store for where in trees for store in self._by_variable(where).get((name, variable), ())]

    def _by_variable(self, tree: Tree) -> Mapping[tuple[str, Hashable], Sequence[_Store]]:
        if tree not in self._of_variables:
            found = self._of_variables[tree] = defaultdict(list)
            for store in self._stores_in(tree):
                found[_name(store.container), self._variable(tree, store.container)].append(store)
        return self._of_variables[tree]

    def _stored_elsewhere(self, name: str, key: object, made: frozenset[cst.CSTNode]) -> set[_Store]:
        indexes = self._by_node(name, key), self._by_node()
        return {store for by_node in indexes for node in made for store in by_node.get(node, ())}

    def _by_node(self, name: str | None = None, key: object = None) -> Mapping[cst.CSTNode, Sequence[_Store]]:
        """The stores into anything of a name, by the places that make it; no name: those where models are wrapped."""
        if (name, key) not in self._stores:
            found, is_whole = self._values.solver.is_whole(lambda: self._find_by_node(name, key))
            if not is_whole:
                return found
            self._stores[name, key] = found
        return self._stores[name, key]

    def _find_by_node(self, name: str | None, key: object) -> Mapping[cst.CSTNode, Sequence[_Store]]:
        found: dict[cst.CSTNode, list[_Store]] = defaultdict(list)
        wrapping = self._program.wrapping()
        trees = wrapping if name is None else self._program.parsed(self._program.filling(name, key))
        for tree in trees:
            for store in self._stores_in(tree):
                if name is None or _name(store.container) == name:
                    for node in self._nodes(tree, store.container):
                        found[node].append(store)
        return found

    def _stores_in(self, tree: Tree) -> list[_Store]:
        if tree not in self._stores_of:
            stores = self._stores_of[tree] = list(_stores_in(tree))
            self._place.update((store, (self._program.place(tree.path), at)) for at, store in enumerate(stores))
        return self._stores_of[tree]

    def _variable(self, tree: Tree, container: cst.BaseExpression) -> Hashable:
        """What is one variable wherever it stands: a name, also imported, or an attribute of it or of `self`."""
        symbol = self._program.symbols.of(tree, container)
        if isinstance(container, cst.Attribute) and symbol is None:
            owner = self._values.objects.class_of_self(tree, container.value)
            holder = owner or self._variable(tree, container.value)
            return (holder, container.attr.value) if holder is not None else None
        return symbol if isinstance(symbol, Defined) else None

    def _nodes(self, tree: Tree, container: cst.BaseExpression) -> frozenset[cst.CSTNode]:
        """The places that make a container."""
        found = self._values.origins(tree, container)
        known = self._nodes_of.get((container, self._values.level))
        if known is None or known[0] is not found:
            nodes = frozenset(o.node for o in found if isinstance(o.node, (cst.BaseExpression, cst.Param)))
            known = self._nodes_of[container, self._values.level] = (found, nodes)
        return known[1]


def _stores_in(tree: Tree) -> Iterator[_Store]:
    for assignment in tree.nodes(cst.Assign):
        for target in (target.target for target in assignment.targets):
            if isinstance(target, cst.Subscript) and len(target.slice) == 1:
                index = target.slice[0].slice
                key = constant(index.value) if isinstance(index, cst.Index) else None
                yield _Store(tree, target.value, assignment.value, isinstance(index, cst.Index), key)
    for augmented in tree.nodes(cst.AugAssign):
        adds = {cst.AddAssign: _Adds.EACH, cst.BitOrAssign: _Adds.ITEMS}.get(type(augmented.operator))
        if adds is not None:
            yield _Store(tree, augmented.target, augmented.value, has_key=False, adds=adds)
    for call in tree.nodes(cst.Call):
        if isinstance(call.func, cst.Attribute):
            yield from _added(tree, call, call.func.value, call.func.attr.value)


def _added(tree: Tree, call: cst.Call, container: cst.BaseExpression, method: str) -> Iterator[_Store]:
    values = [argument.value for argument in call.args]
    if method in {"add", "append", "appendleft"} and len(values) == 1:
        yield _Store(tree, container, values[0], has_key=False)
    elif method == "insert" and len(values) == 2:
        yield _Store(tree, container, values[1], has_key=False)
    elif method == "setdefault" and len(values) == 2:
        yield _Store(tree, container, values[1], has_key=True, key=constant(values[0]))
    elif method == "extend" and len(values) == 1:
        yield _Store(tree, container, values[0], has_key=False, adds=_Adds.EACH)
    elif method == "update":
        for argument in call.args:
            if argument.keyword is not None:
                yield _Store(tree, container, argument.value, has_key=True, key=argument.keyword.value)
            else:
                yield _Store(tree, container, argument.value, has_key=False, adds=_Adds.ITEMS)


def _name(container: cst.BaseExpression) -> str:
    """`nets` of `self.nets` and `nets["a"]`; nothing of what a call gives."""
    return _name(container.value) if isinstance(container, cst.Subscript) else last_name(container) or ""


def constant(node: cst.BaseExpression) -> object:
    """The value of a literal that can be a key; None for anything else."""
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        value = constant(node.expression)
        return -value if isinstance(value, int) else None
    return node.evaluated_value if isinstance(node, (cst.SimpleString, cst.Integer)) else None


def _is_other(stored: object, wanted: object) -> bool:
    """Whether two keys are known to differ. An index of a list says nothing: what is before it can change."""
    return stored is not None and wanted is not None and stored != wanted
