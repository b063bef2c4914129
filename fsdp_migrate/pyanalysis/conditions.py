"""What must hold where code runs, and so what cannot run together.

A model is wrapped under `if args.sharded:`; in the `else` of `if args.sharded:` of another file it is not that model. A
condition is known by the value it asks about, followed through parameters and attributes: `self.zero` is `args.zero`
where that was passed.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import libcst as cst

from .containers import constant
from .origin import Origin
from .tests_around import tests_at
from .tree import Tree
from .values import Values

_EQUAL = {cst.Equal: True, cst.Is: True, cst.NotEqual: False, cst.IsNot: False}
_BOUNDS = {cst.GreaterThan: (True, True), cst.LessThanEqual: (True, False)}
_BOUNDS |= {cst.LessThan: (False, True), cst.GreaterThanEqual: (False, False)}
"""Whether the comparison is written as one that lies above its number, and whether it is that one or its opposite."""
_SETTLED = frozenset(
    f"torch.distributed.{name}" for name in ("get_rank", "get_world_size", "is_available", "is_initialized")
)
"""What a program asks of torch, and is told the same while it has one process group."""
_DEPTH = 3
_CALLERS = 8
"""Of more callers of one function, what holds at all of them is not asked."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What lies above a number, or below it."""

    is_above: bool
    number: int

    def has(self, value: object) -> bool:
        return isinstance(value, int) and (value > self.number if self.is_above else value < self.number)


@dataclass(frozen=True, slots=True)
class Fact:
    """A value is true or false (`wanted` is None then), or equals a constant or does not, or lies in a bound or not."""

    value: Hashable
    wanted: object
    holds: bool

    def contradicts(self, other: Fact) -> bool:
        if not _are_same(self.value, other.value):
            return False
        if self.wanted == other.wanted:
            return self.holds != other.holds
        for bound, equal in ((self, other), (other, self)):
            if isinstance(bound.wanted, Bound):
                return isinstance(equal.wanted, int) and equal.holds and bound.wanted.has(equal.wanted) != bound.holds
        return self.holds and other.holds and None not in (self.wanted, other.wanted)


@dataclass(frozen=True, slots=True)
class Owned:
    """An attribute, or an item, of the objects that can stand at a place: with several callers, of several."""

    owners: frozenset[Hashable]
    name: object


@dataclass(frozen=True, slots=True)
class Chosen:
    """One of several constants, settled once: `if world > 1: kind = "many"`, `else: kind = "one"`."""

    constants: frozenset[cst.CSTNode]


def _are_same(one: Hashable, other: Hashable) -> bool:
    """Whether two places ask about the same value. A helper that several programs call asks about that of each."""
    if isinstance(one, Owned) and isinstance(other, Owned):
        return one.name == other.name and (one.owners <= other.owners or other.owners <= one.owners)
    return one == other


class Conditions:
    """Answers for one program."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._memo: dict[tuple[cst.CSTNode, int], frozenset[Fact]] = {}
        self._set: dict[str, frozenset[Hashable]] = {}

    def exclude(self, tree: Tree, node: cst.CSTNode, other_tree: Tree, other: cst.CSTNode) -> bool:
        """Whether a run that comes to the one place never comes to the other."""
        here = self._at(tree, node)
        return bool(here) and any(a.contradicts(b) for a in here for b in self._at(other_tree, other))

    def _at(self, tree: Tree, node: cst.CSTNode, depth: int = _DEPTH) -> frozenset[Fact]:
        if (node, depth) not in self._memo:
            self._memo[node, depth] = frozenset(self._find(tree, node, depth))
        return self._memo[node, depth]

    def _find(self, tree: Tree, node: cst.CSTNode, depth: int) -> Iterator[Fact]:
        for test, holds in tests_at(tree, node):
            yield from self._facts(tree, test, holds)
        around = next((n for n in tree.ancestors(node) if isinstance(n, (cst.FunctionDef, cst.ClassDef))), None)
        if isinstance(around, cst.FunctionDef):
            callers = self._values.callers.of(tree, around)
            if depth and 0 < len(callers) <= _CALLERS:
                known = [self._at(site.tree, site.call, depth - 1) for site in callers]
                yield from frozenset.intersection(*known)

    def _facts(self, tree: Tree, test: cst.BaseExpression, holds: bool) -> Iterator[Fact]:
        if isinstance(test, cst.Comparison):
            target = test.comparisons[0]
            equal = _EQUAL.get(type(target.operator))
            wanted = constant(target.comparator)
            value = self._value(tree, test.left) if len(test.comparisons) == 1 else None
            if equal is not None and wanted is not None and value is not None:
                yield Fact(value, wanted, holds is equal)
            bound = _BOUNDS.get(type(target.operator))
            if bound is not None and isinstance(wanted, int) and value is not None:
                yield Fact(value, Bound(bound[0], wanted), holds is bound[1])
        else:
            value = self._value(tree, test)
            if value is not None:
                yield Fact(value, None, holds)

    def _value(self, tree: Tree, expression: cst.BaseExpression) -> Hashable | None:
        """What an expression reads, the same for every place that reads it; None when that is not one thing."""
        if isinstance(expression, cst.Call):
            return self._asked(tree, expression)
        if not isinstance(expression, (cst.Name, cst.Attribute, cst.Subscript)):
            return None
        origins = self._values.origins(tree, expression)
        if len(origins) != 1:
            return self._chosen(origins)
        (origin,) = origins
        read = origin.read if origin.node is None else origin.node
        if isinstance(read, cst.Attribute):
            owned = self._part(origin.tree, read.value, read.attr.value)
            is_set = owned is None or not owned.owners.isdisjoint(self._parts_set(read.attr.value))
            return None if is_set else owned
        if isinstance(read, cst.Subscript) and len(read.slice) == 1 and isinstance(read.slice[0].slice, cst.Index):
            key = constant(read.slice[0].slice.value)
            return self._part(origin.tree, read.value, key) if key is not None else None
        if origin.node is None:
            return (origin.tree.path, origin.reason)
        if (
            isinstance(expression, cst.Name)
            and isinstance(origin.node, cst.BaseExpression)
            and _is_constant(origin.node)
        ):
            return origin.node  # `sharded = False` at the top, whatever `exec` makes of it
        return origin.node if isinstance(origin.node, (cst.Call, cst.Comparison, cst.BooleanOperation)) else None

    def _asked(self, tree: Tree, call: cst.Call, depth: int = _DEPTH) -> Hashable | None:
        """What a call asks that the start of the program settles: `get_world_size()`, or a function that asks that."""
        if call.args or not isinstance(call.func, (cst.Name, cst.Attribute)):
            return None
        dotted = self._values.program.symbols.dotted(tree, call.func)
        if dotted in _SETTLED:
            return dotted
        functions = self._values.functions(tree, call.func)
        if len(functions) != 1:
            return None
        ((where, function),) = functions
        return function if self._is_settled(where, function, depth) else None

    def _is_settled(self, tree: Tree, function: cst.FunctionDef, depth: int) -> bool:
        """Whether a function only asks for what is settled, and does nothing."""
        statements = [node for node in tree.inside(function.body) if isinstance(node, cst.BaseSmallStatement)]
        if not depth or not all(isinstance(each, (cst.Return, cst.Expr)) for each in statements):
            return False
        nodes = tree.inside(function.body)
        if any(isinstance(node, (cst.Attribute, cst.Name)) and _is_read(tree, node) for node in nodes):
            return False
        return all(self._asked(tree, node, depth - 1) for node in nodes if isinstance(node, cst.Call))

    def _chosen(self, origins: Collection[Origin]) -> Chosen | None:
        """A constant of several, none of which takes the place of another while the program runs."""
        nodes = [(each.tree, each.node) for each in origins if isinstance(each.node, cst.BaseExpression)]
        if len(nodes) != len(origins) or not all(_is_constant(node) for _, node in nodes):
            return None
        if any(_is_settled_late(tree, node) for tree, node in nodes):
            return None
        ways = [_ways(tree, node) for tree, node in nodes]
        if all(_exclude(one, other) for one, other in combinations(ways, 2)):
            return Chosen(frozenset(node for _, node in nodes))
        return None

    def _parts_set(self, name: str) -> frozenset[Hashable]:
        """The owners whose attribute of this name some line sets: it need not be the same at two places."""
        if name not in self._set:
            targets = [
                (tree, node)
                for tree in self._values.program.mentioning(name)
                for node in tree.attributes(name)
                if isinstance(tree.parents[node], (cst.AssignTarget, cst.AugAssign))
            ]
            parts = [self._part(tree, node.value, name) for tree, node in targets]
            self._set[name] = frozenset(owner for part in parts if part is not None for owner in part.owners)
        return self._set[name]

    def _part(self, tree: Tree, owner: cst.BaseExpression, name: object) -> Owned | None:
        origins = self._values.origins(tree, owner)
        return Owned(frozenset(map(self._identity, origins)), name) if origins else None

    def _identity(self, origin: Origin) -> Hashable:
        """What is the same for every place that reads a value: a library's object is known by its name."""
        if isinstance(origin.node, (cst.Name, cst.Attribute)):
            dotted = self._values.program.symbols.dotted(origin.tree, origin.node)
            if dotted is not None or isinstance(origin.node, cst.Name):
                return dotted or cst.ensure_type(origin.node, cst.Name).value
        return (origin.tree.path, origin.node or origin.reason)


def _is_constant(node: cst.BaseExpression) -> bool:
    is_word = isinstance(node, cst.Name) and node.value in ("True", "False", "None")
    return is_word or constant(node) is not None


def _is_read(tree: Tree, node: cst.CSTNode) -> bool:
    """Whether a name or attribute is read, and neither called, nor a part of what is called, nor `True`."""
    inner, outer = node, tree.parents[node]
    while isinstance(outer, cst.Attribute):
        inner, outer = outer, tree.parents[outer]
    is_called = isinstance(outer, cst.Call) and inner is outer.func
    return not is_called and not (isinstance(node, cst.Name) and node.value in ("True", "False", "None"))


_Ways = Mapping[cst.CSTNode, cst.CSTNode]


def _ways(tree: Tree, node: cst.CSTNode) -> _Ways:
    """The conditions around a place, with the part of each that it lies in."""
    ways: dict[cst.CSTNode, cst.CSTNode] = {}
    inner = node
    for outer in tree.ancestors(node):
        if isinstance(outer, (cst.If, cst.IfExp)):
            ways[outer] = inner
        inner = outer
    return ways


def _exclude(one: _Ways, other: _Ways) -> bool:
    """Whether two places lie in different branches of one condition."""
    return any(condition in other and other[condition] is not part for condition, part in one.items())


def _is_settled_late(tree: Tree, node: cst.CSTNode) -> bool:
    """Whether a constant can be set when another one is already there: in a loop, or in a method."""
    for outer in tree.ancestors(node):
        if isinstance(outer, (cst.For, cst.While)):
            return True
        if isinstance(outer, cst.FunctionDef):
            targets = [each.target for each in _targets(tree, node)]
            return outer.name.value != "__init__" and not all(isinstance(target, cst.Name) for target in targets)
    return False


def _targets(tree: Tree, node: cst.CSTNode) -> Sequence[cst.AssignTarget]:
    statement = next((outer for outer in tree.ancestors(node) if isinstance(outer, cst.BaseSmallStatement)), None)
    return statement.targets if isinstance(statement, cst.Assign) else ()
