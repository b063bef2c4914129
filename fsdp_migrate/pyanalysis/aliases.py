"""What a function, or what an object of a class, is called on its way through a program: by the names alone.

A value goes from name to name: what each name leads to is found once, whatever value has come there. Too many names
cost time, and nothing else: whoever looks for callers asks of each call what it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple, cast

import libcst as cst

from .definitions import class_of, first_parameter, last_name
from .program import Program
from .scopes import Binds, Scope
from .tree import Tree

Targets = Callable[[Tree, cst.BaseExpression], Iterable[tuple[Tree, cst.FunctionDef | cst.Lambda]]]
Definition = cst.FunctionDef | cst.ClassDef
Registering = Callable[[Tree, Definition], Iterable[tuple[Tree, cst.Param]]]
_WHOLE = (cst.IfExp, cst.BooleanOperation, cst.Await, cst.StarredElement, cst.Lambda)
"""What has the value of one of its parts."""
_MAPPED = (cst.DictComp, cst.GeneratorExp, cst.ListComp, cst.SetComp)
_HANDING_ON = frozenset({"partial", "staticmethod", "classmethod"})
_FILLING = frozenset({"add", "append", "extend", "insert"})
_OF_CONTAINERS = frozenset({"get", "values", "items", "pop", "setdefault", "copy"})
_MOST = 200
"""Calls of methods of one name that are looked at: more are of a name that every class has."""
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
        self._definitions: dict[frozenset[str], Sequence[tuple[Tree, cst.BaseExpression]]] = {}
        self._attributes: dict[str, Sequence[tuple[Tree, cst.Attribute]]] = {}

    def definition(self, names: set[str]) -> Sequence[tuple[Tree, cst.BaseExpression]]:
        """`uses_of_definition`."""
        key = frozenset(names)
        if key not in self._definitions:
            self._definitions[key] = list(uses_of_definition(self.program, names))
        return self._definitions[key]

    def attributes(self, name: str) -> Sequence[tuple[Tree, cst.Attribute]]:
        if name not in self._attributes:
            trees = self.program.mentioning(name)
            self._attributes[name] = [(tree, use) for tree in trees for use in tree.attributes(name)]
        return self._attributes[name]


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
        found: Iterable[tuple[Tree, cst.BaseExpression]]
        if name.tree is not None and name.scope is not None:
            uses = name.tree.names(name.name)
            found = ((name.tree, use) for use in uses if name.tree.scope_of[use].lookup(name.name) is name.scope)
        elif name.how in {How.IN_FILE, How.FUNCTION}:
            found = self.named.definition(self.named.program.known_as(name.name))
        else:
            found = self.named.attributes(name.name)
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
        if scope is None or isinstance(scope.node, cst.Module):
            step.names[Name(How.IN_FILE, target.value), place.attributes] = None
        elif isinstance(scope.node, cst.ClassDef):
            _name_attribute(place, target.value, step)
        else:
            step.names[_local(place.tree, scope, target.value), place.attributes] = None


def _name_attribute(place: Place, name: str, step: Step) -> None:
    if place.attributes < _FAR:
        step.names[Name(How.ATTRIBUTE, name), place.attributes + 1] = None


def _local(tree: Tree, scope: Scope, name: str) -> Name:
    return Name(How.LOCAL, name, tree, scope)


def _make(place: Place, function: cst.FunctionDef, step: Step) -> None:
    """A function returns the value."""
    is_method = class_of(place.tree, function) is not None
    attributes = place.attributes + is_method
    if attributes <= _FAR:
        step.names[Name(How.METHOD if is_method else How.FUNCTION, function.name.value), attributes] = None


class Aliases:
    """What a value that some places have is called, there and behind them."""

    def __init__(self, steps: Steps, places: Iterable[Place]) -> None:
        self.names: set[str] = set()
        """Everywhere in the program."""
        self.locals: dict[Tree, set[str]] = {}
        """In functions of these files."""
        self.nameless: dict[Tree, None] = {}
        """The files that call one of the values by no name at all: `table[key](…)`, `Step()(…)`."""
        self._steps = [from_places(places)]
        nearest: dict[Name, int] = {}
        for step in self._steps:
            self.nameless.update(step.nameless)
            for name, attributes in steps.names(step):
                if attributes < nearest.get(name, _FAR + 1):
                    nearest[name] = attributes
                    self._steps.append(steps.behind(name, attributes))
        for name in nearest:
            if name.tree is not None:
                self.locals.setdefault(name.tree, set()).add(name.name)
            elif name.how is How.ATTRIBUTE:
                self.names.add(name.name)
            elif name.how is How.IN_FILE:
                self.names |= steps.named.program.known_as(name.name)

    @property
    def places(self) -> Iterable[tuple[Tree, cst.CSTNode]]:
        """Where the values are."""
        return dict.fromkeys((place.tree, place.node) for step in self._steps for place in step.places)


def uses_of_definition(program: Program, names: set[str]) -> Iterator[tuple[Tree, cst.BaseExpression]]:
    """What can stand for something with one of these names at the top of a file, there or imported."""
    for tree in program.mentioning(*sorted(names)):
        for use in tree.named(*sorted(names)):
            if program.symbols.of(tree, use) is not None if isinstance(use, cst.Attribute) else _is_of_file(tree, use):
                yield tree, use


def _is_of_file(tree: Tree, use: cst.Name) -> bool:
    """Not a variable of a function that happens to have the name."""
    scope = tree.scope_of[use].lookup(use.value)
    if scope is None or not isinstance(scope.node, (cst.FunctionDef, cst.Lambda)):
        return True
    return any(binding.how in {Binds.IMPORT, Binds.DEFINITION} for binding in scope.bindings[use.value])


def _filled(tree: Tree, function: cst.FunctionDef | cst.Lambda, place: int, argument: cst.Arg) -> cst.Param | None:
    """The parameter that gets an argument."""
    params = [*function.params.posonly_params, *function.params.params]
    if argument.keyword is not None:
        every = (*params, *function.params.kwonly_params)
        return next((each for each in every if each.name.value == argument.keyword.value), None)
    is_method = isinstance(function, cst.FunctionDef) and class_of(tree, function) is not None
    given = params[1:] if is_method and first_parameter(function) in {"self", "cls"} else params
    return given[place] if place < len(given) and not argument.star else None
