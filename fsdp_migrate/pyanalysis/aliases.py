"""What a function, or what an object of a class, is called on its way through a program: by the names alone.

A value goes from name to name: what each name leads to is found once, whatever value has come there. Too many names
cost time, and nothing else: whoever looks for callers asks of each call what it runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import islice
from typing import NamedTuple, cast

import libcst as cst

from .definitions import class_of, first_parameter, last_name
from .program import Program
from .scopes import Binds, Scope
from .symbols import Defined, Outside
from .tree import Tree

Use = tuple[Tree, cst.BaseExpression]
Targets = Callable[[Tree, cst.BaseExpression], Iterable[tuple[Tree, cst.FunctionDef | cst.Lambda]]]
Definition = cst.FunctionDef | cst.ClassDef
Registering = Callable[[Tree, Definition], Iterable[tuple[Tree, cst.Param]]]
_WHOLE = (cst.IfExp, cst.BooleanOperation, cst.Await, cst.StarredElement, cst.Lambda)
"""What has the value of one of its parts."""
_MAPPED = (cst.DictComp, cst.GeneratorExp, cst.ListComp, cst.SetComp)
_HANDING_ON = frozenset({"partial", "staticmethod", "classmethod"})
_FILLING = frozenset({"add", "append", "extend", "insert"})
_FUNCTIONS = (cst.FunctionDef, cst.Lambda)
_DEFINING = frozenset({Binds.IMPORT, Binds.DEFINITION})
_OF_CONTAINERS = frozenset({"get", "values", "items", "pop", "setdefault", "copy"})
_MOST = 200
"""Calls of methods of one name that are looked at: more are of a name that every class has."""
_MOST_STEPS = 500
"""Names that a value gets, the nearest first: what gets more goes wherever values go, as what a tracer wraps does."""
_FAR = 2
"""How many attributes lie between a function and a call of it, at most: their names are those of other things, too."""


class Place(NamedTuple):
    """An expression that can be the value."""

    tree: Tree
    node: cst.BaseExpression | Definition
    attributes: int = 0
    """How many attributes the value went through."""


class How(Enum):
    """What has a name."""

    IN_FILE = auto()
    """A variable at the top of a file, there or imported."""
    ATTRIBUTE = auto()
    LOCAL = auto()
    """A variable of a function."""
    FUNCTION = auto()
    """What a function of this name returns."""
    METHOD = auto()


class Name(NamedTuple):
    """A name that a value gets."""

    how: How
    name: str
    tree: Tree | None = None
    """Of a local name, its file."""
    scope: Scope | None = None


Parameters = list[tuple[Name, int]]


@dataclass
class Step:
    """Where a value goes from some places on, up to the next names."""

    places: list[Place]
    names: dict[tuple[Name, int], None] = field(default_factory=dict)
    """Each with the number of attributes on the way to it."""
    nameless: dict[Tree, None] = field(default_factory=dict)
    passed: list[tuple[Place, cst.Call, cst.Arg]] = field(default_factory=list)
    """Arguments of calls that may be of the program's functions: their parameters are names, too."""
    defined: list[Place] = field(default_factory=list)
    """Definitions: of some, a decorator makes a parameter."""


class Named:
    """Where the names of a program stand, each looked up once: many functions are called the same on their way."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._uses: dict[str, _Uses] = {}
        self._attributes: dict[str, Sequence[Use]] = {}

    def uses(self, tree: Tree, scope: Scope, name: str) -> Iterator[Use]:
        """What can stand for something that a file, or a function, has by a name: there, or where it is imported."""
        if name not in self._uses:
            self._uses[name] = _Uses(self.program, name)
        return self._uses[name].of(tree, scope)

    def attributes(self, name: str) -> Sequence[Use]:
        if name not in self._attributes:
            trees = self.program.mentioning(name)
            self._attributes[name] = [(tree, use) for tree in trees for use in tree.attributes(name)]
        return self._attributes[name]


class _Uses:
    """What goes by one name in a program, variables of functions left out, by the scope that it comes from."""

    def __init__(self, program: Program, name: str) -> None:
        self._name = name
        self._symbols = program.symbols
        self._known: dict[Scope, list[Use]] = defaultdict(list)
        self._unseen: list[tuple[str | None, Use]] = []
        """What an import gives that leads to no file, with the module's first name."""
        names = sorted(program.known_as(name))
        for tree in program.mentioning(*names):
            for use in tree.named(*names):
                self._add(tree, use)

    def of(self, tree: Tree, scope: Scope) -> Iterator[Use]:
        yield from self._known.get(scope, ())
        if isinstance(scope.node, cst.Module):
            places = {None, tree.path.stem, *tree.path.parts}
            yield from (use for first, use in self._unseen if first in places)

    def _add(self, tree: Tree, use: cst.Name | cst.Attribute) -> None:
        bound = tree.scope_of[use].lookup(use.value) if isinstance(use, cst.Name) else None
        bindings = bound.bindings[use.value] if isinstance(use, cst.Name) and bound is not None else ()
        ways = {binding.how for binding in bindings}
        if bound is not None and isinstance(bound.node, _FUNCTIONS) and ways.isdisjoint(_DEFINING):
            return
        if bound is not None and use.value == self._name:
            self._known[bound].append((tree, use))
        symbol = self._symbols.of(tree, use)
        if isinstance(symbol, Defined):
            if symbol.scope is not bound and symbol.name == self._name:
                self._known[symbol.scope].append((tree, use))
        elif isinstance(symbol, Outside):
            names = symbol.dotted.split(".")
            if names[-1] == self._name:
                self._unseen.append((names[0], (tree, use)))
        elif Binds.IMPORT in ways:
            self._unseen.append((None, (tree, use)))


class Steps:
    """Where values go from each name of a program."""

    def __init__(
        self,
        named: Named,
        targets: Targets = lambda tree, callee: (),
        registering: Registering = lambda tree, definition: (),
        is_whole: Callable[[Callable[[], Parameters]], tuple[Parameters, bool]] = lambda find: (find(), True),
    ) -> None:
        """`targets`: the functions of the program that an expression stands for.

        `registering`: their parameters that a definition becomes where it stands, by a decorator.
        `is_whole`: parameters, and whether they are known for good.
        """
        self.named = named
        self._targets = targets
        self._registering = registering
        self._is_whole = is_whole
        self._known: dict[tuple[Name, int], Step] = {}

    def behind(self, name: Name, attributes: int) -> Step:
        """Where the value goes from its uses by a name."""
        key = name, attributes
        if key not in self._known:
            self._known[key] = from_places(self._uses(name, attributes))
        return self._known[key]

    def names(self, step: Step) -> Iterable[tuple[Name, int]]:
        """The names that the value gets by a step, each with the number of attributes on the way to it."""
        if not step.passed and not step.defined:
            return step.names
        parameters, is_whole = self._is_whole(lambda: [*self._parameters(step)])
        if not is_whole:
            return [*step.names, *parameters]
        step.names.update(dict.fromkeys(parameters))
        step.passed.clear()
        step.defined.clear()
        return step.names

    def _parameters(self, step: Step) -> Iterator[tuple[Name, int]]:
        for place in step.defined:
            for where, filled in self._registering(place.tree, cast(Definition, place.node)):
                yield _local(where, where.scope_of[filled], filled.name.value), place.attributes
        for place, call, argument in step.passed:
            for tree, called in self._targets(place.tree, call.func):
                parameter = _filled(tree, called, call.args.index(argument), argument)
                if parameter is not None:
                    yield _local(tree, tree.scope_of[parameter], parameter.name.value), place.attributes

    def _uses(self, name: Name, attributes: int) -> Iterator[Place]:
        found: Iterable[Use]
        if name.tree is None:
            found = self.named.attributes(name.name)
        elif name.scope is not None and name.how is not How.LOCAL:
            found = self.named.uses(name.tree, name.scope, name.name)
        else:
            uses = name.tree.names(name.name)
            found = ((name.tree, use) for use in uses if name.tree.scope_of[use].lookup(name.name) is name.scope)
        if name.how not in {How.FUNCTION, How.METHOD}:
            yield from (Place(tree, use, attributes) for tree, use in found)
            return
        uses_of_method = list(found)
        if name.how is How.METHOD and len(uses_of_method) > _MOST:
            return
        for tree, use in uses_of_method:
            call = tree.parents[use]
            if isinstance(call, cst.Call) and call.func is use:
                yield Place(tree, call, attributes)


def from_places(places: Iterable[Place]) -> Step:
    """Where the value goes from some expressions."""
    step = Step([*places])
    known = set()
    for place in step.places:
        if place.node not in known:
            known.add(place.node)
            _go_on(place, step)
    return step


def _go_on(place: Place, step: Step) -> None:
    tree, node, _ = place
    if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        step.defined.append(place)
        return
    holder = tree.parents[node]
    if isinstance(holder, cst.Call):
        if last_name(node) is None:
            step.nameless[tree] = None
    elif isinstance(holder, (cst.Element, cst.DictElement)):
        step.places.append(place._replace(node=cast(cst.BaseExpression, tree.parents[holder])))
    elif isinstance(holder, _MAPPED) and node is (holder.value if isinstance(holder, cst.DictComp) else holder.elt):
        step.places.append(place._replace(node=holder))
    elif isinstance(holder, _WHOLE) or (isinstance(holder, cst.Subscript) and holder.value is node):
        step.places.append(place._replace(node=holder))
    elif isinstance(holder, cst.Attribute) and holder.value is node and holder.attr.value in _OF_CONTAINERS:
        call = tree.parents[holder]
        step.places += [place._replace(node=call)] if isinstance(call, cst.Call) and call.func is holder else []
    elif isinstance(holder, (cst.For, cst.CompFor, cst.NamedExpr, cst.AnnAssign)):
        _name(place, holder.target, step)
    elif isinstance(holder, cst.Assign):
        for target in holder.targets:
            _name(place, target.target, step)
    elif isinstance(holder, cst.Return):
        _make(place, next(each for each in tree.ancestors(holder) if isinstance(each, cst.FunctionDef)), step)
    elif isinstance(holder, cst.Param) and holder.default is node:
        step.names[_local(tree, tree.scope_of[holder], holder.name.value), place.attributes] = None
    elif isinstance(holder, cst.Arg):
        _pass(place, holder, step)


def _pass(place: Place, argument: cst.Arg, step: Step) -> None:
    call = place.tree.parents[argument]
    if not isinstance(call, cst.Call):
        return
    if last_name(call.func) in _HANDING_ON:
        step.places.append(place._replace(node=call))
    elif isinstance(call.func, cst.Attribute) and call.func.attr.value in _FILLING:
        _name(place, call.func.value, step)
    else:
        step.passed.append((place, call, argument))


def _name(place: Place, target: cst.BaseExpression, step: Step) -> None:
    if isinstance(target, (cst.Tuple, cst.List)):
        for element in target.elements:
            _name(place, element.value, step)
    elif isinstance(target, cst.Subscript):
        _name(place, target.value, step)
    elif isinstance(target, cst.Attribute):
        _name_attribute(place, target.attr.value, step)
    elif isinstance(target, cst.Name):
        scope = place.tree.scope_of[target].lookup(target.value)
        if scope is not None and isinstance(scope.node, cst.Module):
            step.names[Name(How.IN_FILE, target.value, place.tree, scope), place.attributes] = None
        elif scope is not None and isinstance(scope.node, cst.ClassDef):
            _name_attribute(place, target.value, step)
        else:
            step.names[_local(place.tree, scope, target.value), place.attributes] = None


def _name_attribute(place: Place, name: str, step: Step) -> None:
    if place.attributes < _FAR:
        step.names[Name(How.ATTRIBUTE, name), place.attributes + 1] = None


def _local(tree: Tree, scope: Scope | None, name: str) -> Name:
    return Name(How.LOCAL, name, tree, scope)


def _make(place: Place, function: cst.FunctionDef, step: Step) -> None:
    """A function returns the value."""
    if class_of(place.tree, function) is None:
        name = Name(How.FUNCTION, function.name.value, place.tree, place.tree.scope_of[function])
        step.names[name, place.attributes] = None
    elif place.attributes < _FAR:
        step.names[Name(How.METHOD, function.name.value), place.attributes + 1] = None


class Aliases:
    """What a value that some places have is called, there and behind them."""

    def __init__(self, steps: Steps, places: Iterable[Place]) -> None:
        self.names: set[str] = set()
        """Everywhere in the program."""
        self.locals: dict[Tree, set[str]] = {}
        """In functions of these files."""
        self.nameless: dict[Tree, None] = {}
        """The files that call one of the values by no name at all: `table[key](…)`, `Step()(…)`."""
        self.is_cut_short = False
        self._steps = [from_places(places)]
        nearest: dict[Name, int] = {}
        for step in islice(self._steps, _MOST_STEPS):
            self.nameless.update(step.nameless)
            for name, attributes in steps.names(step):
                if attributes < nearest.get(name, _FAR + 1):
                    nearest[name] = attributes
                    self._steps.append(steps.behind(name, attributes))
        self.is_cut_short = len(self._steps) > _MOST_STEPS
        for name in nearest:
            if name.how is How.LOCAL and name.tree is not None:
                self.locals.setdefault(name.tree, set()).add(name.name)
            elif name.how is How.ATTRIBUTE:
                self.names.add(name.name)
            elif name.how is How.IN_FILE:
                self.names |= steps.named.program.known_as(name.name)

    @property
    def places(self) -> Iterable[tuple[Tree, cst.CSTNode]]:
        """Where the values are."""
        return dict.fromkeys((place.tree, place.node) for step in self._steps for place in step.places)


def _filled(tree: Tree, function: cst.FunctionDef | cst.Lambda, place: int, argument: cst.Arg) -> cst.Param | None:
    """The parameter that gets an argument."""
    params = [*function.params.posonly_params, *function.params.params]
    if argument.keyword is not None:
        every = (*params, *function.params.kwonly_params)
        return next((each for each in every if each.name.value == argument.keyword.value), None)
    is_method = isinstance(function, cst.FunctionDef) and class_of(tree, function) is not None
    given = params[1:] if is_method and first_parameter(function) in {"self", "cls"} else params
    return given[place] if place < len(given) and not argument.star else None
