"""What must hold where code runs, and so what cannot run together.

A model is wrapped under `if args.sharded:`; in the `else` of `if args.sharded:` of another file it is not that model. A
condition is known by the value it asks about, followed through parameters and attributes: `self.zero` is `args.zero`
where that was passed.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, takewhile

import libcst as cst

from .containers import constant
from .definitions import class_of, is_class_method, is_property, returns, takes_object
from .flow import reaching
from .order import Order
from .origin import Origin
from .tests_around import left_before, parts, tests_at
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

    def follows_from(self, other: Fact) -> bool:
        return (self.wanted, self.holds) == (other.wanted, other.holds) and _are_same(self.value, other.value)

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
class OneOf:
    """One of these at least is so, each of several facts: in the `else` of `if a and b:`, a is false or b is."""

    ways: frozenset[frozenset[Fact]]

    def contradicts(self, facts: Collection[Fact | OneOf]) -> bool:
        single = [fact for fact in facts if isinstance(fact, Fact)]
        return all(any(one.contradicts(other) for one in way for other in single) for way in self.ways)


@dataclass(frozen=True, slots=True)
class Owned:
    """An attribute, or an item, of the objects that can stand at a place: with several callers, of several."""

    owners: frozenset[Hashable]
    name: object


@dataclass(frozen=True, slots=True)
class Chosen:
    """One of several constants, settled once: `if world > 1: kind = "many"`, `else: kind = "one"`."""

    constants: frozenset[cst.CSTNode]


def _compared_with(node: cst.BaseExpression) -> object:
    """The constant in `kind == "many"`, `count > 1` and `args.zero == False`."""
    if isinstance(node, cst.Name) and node.value in ("True", "False"):
        return node.value == "True"
    return constant(node)


def _are_same(one: Hashable, other: Hashable) -> bool:
    """Whether two places ask about the same value. A helper that several programs call asks about that of each."""
    if isinstance(one, Owned) and isinstance(other, Owned):
        return one.name == other.name and (one.owners <= other.owners or other.owners <= one.owners)
    return one == other


class Conditions:
    """Answers for one program."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._order = Order(values)
        self._memo: dict[tuple[cst.CSTNode, int], frozenset[Fact | OneOf]] = {}
        self._sizes: set[Hashable] = {"torch.distributed.get_world_size"}
        self._set: dict[str, Sequence[tuple[Tree, cst.Attribute, frozenset[Hashable]]]] = {}

    def exclude(self, tree: Tree, node: cst.CSTNode, other_tree: Tree, other: cst.CSTNode) -> bool:
        """Whether a run that comes to the one place never comes to the other."""
        here = self._at(tree, node)
        there = self._at(other_tree, other) if here else here
        return _any_contradicts(here, there) or _any_contradicts(there, here)

    def meets(self, tree: Tree, test: cst.BaseExpression, other_tree: Tree, other: cst.CSTNode) -> bool:
        """Whether a test is met in each run that comes to a place."""
        asked = [list(self._facts(tree, *part)) for part in parts(test, True)]
        known = [fact for fact in self._at(other_tree, other) if isinstance(fact, Fact)]
        return all(facts and all(any(f.follows_from(each) for each in known) for f in facts) for facts in asked)

    def says_anything(self, tree: Tree, node: cst.CSTNode) -> bool:
        """Whether anything is known to hold at a place."""
        return bool(self._at(tree, node))

    def _at(self, tree: Tree, node: cst.CSTNode, depth: int = _DEPTH) -> frozenset[Fact | OneOf]:
        if (node, depth) not in self._memo:
            self._memo[node, depth] = frozenset(self._find(tree, node, depth))
        return self._memo[node, depth]

    def _find(self, tree: Tree, node: cst.CSTNode, depth: int) -> Iterator[Fact | OneOf]:
        for test, holds in tests_at(tree, node):
            if isinstance(test, cst.BooleanOperation):
                yield self._one_of(tree, test, holds)
            else:
                yield from self._facts(tree, test, holds)
        around = next((n for n in tree.ancestors(node) if isinstance(n, (cst.FunctionDef, cst.ClassDef))), None)
        if isinstance(around, cst.FunctionDef):
            callers = self._values.callers.of(tree, around)
            if depth and 0 < len(callers) <= _CALLERS:
                known = [self._at(site.tree, site.call, depth - 1) for site in callers]
                yield from frozenset.intersection(*known)
            made = self._maker(tree, around)
            if depth and made is not None:  # there is no object before
                yield from self._at(tree, made.body, depth)

    def _maker(self, tree: Tree, method: cst.FunctionDef) -> cst.FunctionDef | None:
        """The `__init__` that makes every object that a method can be of."""
        owner = class_of(tree, method)
        if owner is None or not takes_object(tree, method) or is_class_method(method):
            return None
        own = [node for node in owner.body.body if isinstance(node, cst.FunctionDef) and node.name.value == "__init__"]
        is_one = len(own) == 1 and own[0] is not method and not self._values.objects.heirs(tree, owner)
        return own[0] if is_one else None

    def _one_of(self, tree: Tree, test: cst.BooleanOperation, holds: bool) -> OneOf:
        ways = (parts(side, holds) for side in (test.left, test.right))
        return OneOf(frozenset(frozenset(f for each in way for f in self._facts(tree, *each)) for way in ways))

    def _facts(self, tree: Tree, test: cst.BaseExpression, holds: bool) -> Iterator[Fact]:
        if isinstance(test, cst.Comparison):
            target = test.comparisons[0]
            equal = _EQUAL.get(type(target.operator))
            wanted = _compared_with(target.comparator)
            value = self._value(tree, test.left) if len(test.comparisons) == 1 else None
            if equal is not None and wanted is not None and value is not None:
                yield Fact(value, wanted, holds is equal)
                if holds is equal:  # what is not False may be None
                    yield Fact(value, None, bool(wanted))
                if wanted == 1 and self._is_size(value):
                    yield Fact(value, Bound(True, 1), holds is not equal)
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
        origins = self._but_by_name(tree, expression, self._values.origins(tree, expression))
        if len(origins) != 1:
            chosen = self._chosen(origins, tree, expression) or self._set_and_read(tree, expression, origins)
            return chosen or self._asked_above(tree, expression) or self._put_together(tree, expression)
        (origin,) = origins
        read = origin.read if origin.node is None else origin.node
        if isinstance(read, cst.Attribute):
            return self._owned(origin.tree, read)
        if isinstance(read, cst.Subscript) and len(read.slice) == 1 and isinstance(read.slice[0].slice, cst.Index):
            key = constant(read.slice[0].slice.value)
            return self._part(origin.tree, read.value, key) if key is not None else None
        if origin.node is None or isinstance(origin.node, cst.Param):
            return (origin.tree.path, origin.node or origin.reason)
        if (
            isinstance(expression, cst.Name)
            and isinstance(origin.node, cst.BaseExpression)
            and _is_constant(origin.node)
        ):
            return origin.node  # `sharded = False` at the top, whatever `exec` makes of it
        if isinstance(origin.node, cst.Call):
            return self._asked(origin.tree, origin.node) or origin.node
        return origin.node if isinstance(origin.node, (cst.Comparison, cst.BooleanOperation)) else None

    def _but_by_name(self, tree: Tree, expression: cst.BaseExpression, origins: Sequence[Origin]) -> Sequence[Origin]:
        """Without what `setattr(config, name, value)` may have set: that is done once, as all is set up."""
        others = [each for each in origins if each.read is not expression]
        if not others or len(others) == len(origins) or not isinstance(expression, cst.Attribute):
            return origins
        return others if self._values.objects.is_set_by_name(tree, expression.value, ()) else origins

    def _set_and_read(self, tree: Tree, expression: cst.BaseExpression, origins: Collection[Origin]) -> Owned | None:
        """An attribute of a configuration that the program sets as well, by assignments alone."""
        if not isinstance(expression, cst.Attribute) or not any(origin.read is expression for origin in origins):
            return None
        set_by = [each for each in origins if each.read is not expression]
        targets = [[t.target for t in _targets(each.tree, each.node)] for each in set_by if each.node is not None]
        names = [[t.attr.value for t in each if isinstance(t, cst.Attribute)] for each in targets]
        is_each_set = len(names) == len(set_by) and all(expression.attr.value in each for each in names)
        return self._owned(tree, expression) if is_each_set else None

    def _owned(self, tree: Tree, read: cst.Attribute) -> Owned | None:
        owned = self._part(tree, read.value, read.attr.value)
        return None if owned is None or self._is_set_late(owned, tree, read) else owned

    def _asked_above(self, tree: Tree, expression: cst.BaseExpression) -> Hashable | None:
        """The same of what a variable was given: `world_size = get_world_size()`."""
        bound = reaching(tree, expression, expression.value) if isinstance(expression, cst.Name) else ()
        value = bound[0].value if len(bound) == 1 and not bound[0].path else None
        return self._asked(tree, value) if isinstance(value, cst.Call) else None

    def _put_together(self, tree: Tree, expression: cst.BaseExpression) -> cst.BooleanOperation | None:
        """What an object's flag was given that `__init__` sets, once: `self.zero = config.zero and many()`.

        Or what a property gives of values that stay.
        """
        if not isinstance(expression, cst.Attribute):
            return None
        objects, name = self._values.objects, expression.attr.value
        owner = objects.class_of_self(tree, expression.value)
        owners = [(where, node, objects.class_of_self(where, node.value)) for where, node, _ in self._stores(name)]
        if owner is None or any(each is None for _, _, each in owners):
            return None
        if not owners:
            return self._given_by_property(tree, owner, name)
        family = {owner, *(heir for _, heir in objects.heirs(tree, owner))}
        stores = [(where, node) for where, node, each in owners if each in family]
        if len(stores) != 1:
            return None
        ((where, store),) = stores
        statement = where.parents[where.parents[store]]
        around = next((outer for outer in where.ancestors(store) if isinstance(outer, cst.FunctionDef)), None)
        if around is None or around.name.value != "__init__" or _is_in_loop(where, store):
            return None
        value = statement.value if isinstance(statement, cst.Assign) else None
        return value if isinstance(value, cst.BooleanOperation) else None

    def _given_by_property(self, tree: Tree, owner: cst.ClassDef, name: str) -> cst.BooleanOperation | None:
        """`return self.args.zero and many()`, in a class that no other one takes it from."""
        own = [node for node in owner.body.body if isinstance(node, cst.FunctionDef) and node.name.value == name]
        is_one = len(own) == 1 and is_property(own[0]) and not self._values.objects.heirs(tree, owner)
        given = returns(tree, own[0]) if is_one else []
        value = given[0] if len(given) == 1 else None
        return value if isinstance(value, cst.BooleanOperation) and self._stays(tree, value) else None

    def _stays(self, tree: Tree, test: cst.BaseExpression) -> bool:
        """Whether each value that a test is put together of is one thing."""
        if isinstance(test, cst.BooleanOperation):
            return self._stays(tree, test.left) and self._stays(tree, test.right)
        if isinstance(test, cst.UnaryOperation):
            return self._stays(tree, test.expression)
        return bool(list(self._facts(tree, test, True)))

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
        if not self._is_settled(where, function, depth):
            return None
        given = returns(where, function)
        if given and all(self._gives_size(where, value, depth) for value in given):
            self._sizes.add(function)
        return function

    def _gives_size(self, tree: Tree, value: cst.BaseExpression, depth: int) -> bool:
        """`get_world_size()`, and `1` for a run without a process group."""
        if isinstance(value, cst.IfExp):
            return all(self._gives_size(tree, side, depth) for side in (value.body, value.orelse))
        if isinstance(value, cst.Call):
            asked = self._asked(tree, value, depth - 1)
            return asked is not None and self._is_size(asked)
        return constant(value) == 1

    def _is_size(self, value: Hashable) -> bool:
        """Whether it counts ranks, of which there is one at least: what is not 1 is more."""
        return value in self._sizes

    def _is_settled(self, tree: Tree, function: cst.FunctionDef, depth: int) -> bool:
        """Whether a function only asks for what is settled, and does nothing."""
        statements = [node for node in tree.inside(function.body) if isinstance(node, cst.BaseSmallStatement)]
        if not depth or not all(isinstance(each, (cst.Return, cst.Expr)) for each in statements):
            return False
        nodes = tree.inside(function.body)
        if any(isinstance(node, (cst.Attribute, cst.Name)) and _is_read(tree, node) for node in nodes):
            return False
        return all(self._asked(tree, node, depth - 1) for node in nodes if isinstance(node, cst.Call))

    def _chosen(self, origins: Collection[Origin], tree: Tree, read: cst.BaseExpression) -> Chosen | None:
        """A constant of several, none of which takes the place of another while the program runs."""
        nodes = [(each.tree, each.node) for each in origins if isinstance(each.node, cst.BaseExpression)]
        if len(nodes) != len(origins) or not all(_is_constant(node) for _, node in nodes):
            return None
        late = ((where, node) for where, node in nodes if _is_settled_late(where, node))
        if any(_is_in_loop(*each) or not self._order.is_set_up(*each, tree, read) for each in late):
            return None
        ways = [_ways(where, node) for where, node in nodes]
        if all(_exclude(one, other) for one, other in combinations(ways, 2)):
            return Chosen(frozenset(node for _, node in nodes))
        return None

    def _is_set_late(self, owned: Owned, tree: Tree, read: cst.Attribute) -> bool:
        """Whether some line may set an attribute anew behind a place that reads it: it is not the same at two places,
        unless each run of the program sets it before it reads it.
        """
        return any(
            not owned.owners.isdisjoint(owners) and not self._order.is_set_up(where, store, tree, read)
            for where, store, owners in self._stores(read.attr.value)
        )

    def _stores(self, name: str) -> Sequence[tuple[Tree, cst.Attribute, frozenset[Hashable]]]:
        """Where an attribute of this name is set, and of what."""
        if name not in self._set:
            targets = [
                (tree, node)
                for tree in self._values.program.mentioning(name)
                for node in tree.attributes(name)
                if isinstance(tree.parents[node], (cst.AssignTarget, cst.AugAssign))
            ]
            found = [(tree, node, self._part(tree, node.value, name)) for tree, node in targets]
            self._set[name] = [(tree, node, part.owners) for tree, node, part in found if part is not None]
        return self._set[name]

    def _part(self, tree: Tree, owner: cst.BaseExpression, name: object) -> Owned | None:
        origins = self._values.origins(tree, owner)
        return Owned(frozenset(map(self._identity, origins)), name) if origins else None

    def _identity(self, origin: Origin) -> Hashable:
        """What is the same for every place that reads a value: a library's object is known by its name, what run time
        sets of the program's one settings object by what it is of that.
        """
        if origin.node is None and isinstance(origin.read, cst.Attribute):
            return self._of_one_object(origin.tree, origin.read) or (origin.tree.path, origin.reason)
        if isinstance(origin.node, (cst.Name, cst.Attribute)):
            dotted = self._values.program.symbols.dotted(origin.tree, origin.node)
            if dotted is not None or isinstance(origin.node, cst.Name):
                return dotted or cst.ensure_type(origin.node, cst.Name).value
        return (origin.tree.path, origin.node or origin.reason)

    def _of_one_object(self, tree: Tree, read: cst.Attribute) -> Hashable | None:
        """`settings.config.zero`, where the top of a file makes `settings`: the same in each file that reads it."""
        names, root = [read.attr.value], read.value
        while isinstance(root, cst.Attribute):
            names.append(root.attr.value)
            root = root.value
        origins = self._values.origins(tree, root) if isinstance(root, cst.Name) else ()
        made = [o.node for o in origins if isinstance(o.node, cst.Call) and _is_at_top(o.tree, o.node)]
        return (made[0], *names) if len(made) == len(origins) == 1 else None


def _is_at_top(tree: Tree, node: cst.CSTNode) -> bool:
    return not any(isinstance(outer, (cst.FunctionDef, cst.Lambda, cst.BaseComp)) for outer in tree.ancestors(node))


def _any_contradicts(facts: Collection[Fact | OneOf], others: Collection[Fact | OneOf]) -> bool:
    return any(
        each.contradicts(others)
        if isinstance(each, OneOf)
        else any(isinstance(other, Fact) and each.contradicts(other) for other in others)
        for each in facts
    )


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
    """The conditions around a place, with the part of each that it lies in; `if world == 1: return` above is one."""
    ways: dict[cst.CSTNode, cst.CSTNode] = {}
    inner = node
    for outer in tree.ancestors(node):
        if isinstance(outer, (cst.If, cst.IfExp)):
            ways[outer] = inner
        elif isinstance(outer, (cst.IndentedBlock, cst.Module)):
            ways |= dict.fromkeys(left_before(outer.body, inner), outer)
        inner = outer
    return ways


def _exclude(one: _Ways, other: _Ways) -> bool:
    """Whether two places lie in different branches of one condition."""
    return any(condition in other and other[condition] is not part for condition, part in one.items())


def _is_settled_late(tree: Tree, node: cst.CSTNode) -> bool:
    """Whether a constant can be set when another one is already there: in a loop, or in a method."""
    if _is_in_loop(tree, node):
        return True
    for outer in tree.ancestors(node):
        if isinstance(outer, cst.FunctionDef):
            targets = [each.target for each in _targets(tree, node)]
            return outer.name.value != "__init__" and not all(isinstance(target, cst.Name) for target in targets)
    return False


def _is_in_loop(tree: Tree, node: cst.CSTNode) -> bool:
    around = takewhile(lambda outer: not isinstance(outer, cst.FunctionDef), tree.ancestors(node))
    return any(isinstance(outer, (cst.For, cst.While)) for outer in around)


def _targets(tree: Tree, node: cst.CSTNode) -> Sequence[cst.AssignTarget]:
    statement = next((outer for outer in tree.ancestors(node) if isinstance(outer, cst.BaseSmallStatement)), None)
    return statement.targets if isinstance(statement, cst.Assign) else ()
