"""What a function, or what an object of a class, is called on its way through a program: by the names alone.

Too many names cost time, and nothing else: whoever looks for callers asks of each call what it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, cast

import libcst as cst

from .definitions import class_of, first_parameter, last_name
from .program import Program
from .scopes import Binds, Scope
from .tree import Tree

Targets = Callable[[Tree, cst.BaseExpression], Iterable[tuple[Tree, cst.FunctionDef | cst.Lambda]]]
Registering = Callable[[Tree, cst.FunctionDef | cst.ClassDef], Iterable[tuple[Tree, cst.Param]]]
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
    node: cst.BaseExpression | cst.FunctionDef | cst.ClassDef
    attributes: int = 0
    """How many attributes the value went through."""


class Named:
    """Where the names of a program stand, each looked up once: many functions are called the same on their way."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._definitions: dict[frozenset[str], Sequence[tuple[Tree, cst.BaseExpression]]] = {}
        self._attributes: dict[str, Sequence[tuple[Tree, cst.Attribute]]] = {}
        self._variables: dict[tuple[Scope, str], Sequence[cst.Name]] = {}

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

    def variable(self, tree: Tree, scope: Scope, name: str) -> Sequence[cst.Name]:
        if (scope, name) not in self._variables:
            uses = [use for use in tree.names(name) if tree.scope_of[use].lookup(name) is scope]
            self._variables[scope, name] = uses
        return self._variables[scope, name]


class Aliases:
    """The names that values get from some places on."""

    def __init__(self, named: Named, targets: Targets, registering: Registering) -> None:
        """`targets`: the functions of the program that an expression stands for.

        `registering`: their parameters that a definition becomes where it stands, by a decorator.
        """
        self._named = named
        self._targets = targets
        self._registering = registering
        self.names: set[str] = set()
        """Everywhere in the program."""
        self.locals: dict[Tree, set[str]] = {}
        """In functions of these files."""
        self.nameless: dict[Tree, None] = {}
        """The files that call one of the values by no name at all: `table[key](…)`, `Step()(…)`."""
        self._known: set[object] = set()
        self.places: list[Place] = []
        """Where the values are."""

    def follow(self, places: Iterable[Place]) -> None:
        """Find what is called otherwise behind these expressions."""
        self.places += places
        for place in self.places:
            if self._is_new(place.node):
                self._go_on(place)

    def _is_new(self, key: object) -> bool:
        if key in self._known:
            return False
        self._known.add(key)
        return True

    def _go_on(self, place: Place) -> None:
        tree, node, _ = place
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            for where, filled in self._registering(tree, node):
                self._name_locally(place, where, where.scope_of[filled], filled.name.value)
            return
        holder = tree.parents[node]
        if isinstance(holder, cst.Call):
            if last_name(node) is None:
                self.nameless[tree] = None
        elif isinstance(holder, (cst.Element, cst.DictElement)):
            self.places.append(place._replace(node=cast(cst.BaseExpression, tree.parents[holder])))
        elif isinstance(holder, _MAPPED) and node is (holder.value if isinstance(holder, cst.DictComp) else holder.elt):
            self.places.append(place._replace(node=holder))
        elif isinstance(holder, _WHOLE) or (isinstance(holder, cst.Subscript) and holder.value is node):
            self.places.append(place._replace(node=holder))
        elif isinstance(holder, cst.Attribute) and holder.value is node and holder.attr.value in _OF_CONTAINERS:
            call = tree.parents[holder]
            self.places += [place._replace(node=call)] if isinstance(call, cst.Call) and call.func is holder else []
        elif isinstance(holder, (cst.For, cst.CompFor, cst.NamedExpr, cst.AnnAssign)):
            self._name(place, holder.target)
        elif isinstance(holder, cst.Assign):
            for target in holder.targets:
                self._name(place, target.target)
        elif isinstance(holder, cst.Return):
            self._make(place, next(each for each in tree.ancestors(holder) if isinstance(each, cst.FunctionDef)))
        elif isinstance(holder, cst.Param) and holder.default is node:
            self._name_locally(place, tree, tree.scope_of[holder], holder.name.value)
        elif isinstance(holder, cst.Arg):
            self._pass(place, holder)

    def _name(self, place: Place, target: cst.BaseExpression) -> None:
        if isinstance(target, (cst.Tuple, cst.List)):
            for element in target.elements:
                self._name(place, element.value)
        elif isinstance(target, cst.Subscript):
            self._name(place, target.value)
        elif isinstance(target, cst.Attribute):
            self._name_attribute(place, target.attr.value)
        elif isinstance(target, cst.Name):
            scope = place.tree.scope_of[target].lookup(target.value)
            if scope is None or isinstance(scope.node, cst.Module):
                self._name_in_file(place, target.value)
            elif isinstance(scope.node, cst.ClassDef):
                self._name_attribute(place, target.value)
            else:
                self._name_locally(place, place.tree, scope, target.value)

    def _name_in_file(self, place: Place, name: str) -> None:
        known = {each for each in self._named.program.known_as(name) if self._is_new(("in a file", each))}
        self.names |= known
        self._add(self._named.definition(known), place.attributes)

    def _add(self, found: Iterable[tuple[Tree, cst.BaseExpression]], attributes: int) -> None:
        self.places += [Place(tree, use, attributes) for tree, use in found if use not in self._known]

    def _name_attribute(self, place: Place, name: str) -> None:
        if place.attributes < _FAR and self._is_new(name):
            self.names.add(name)
            self._add(self._named.attributes(name), place.attributes + 1)

    def _name_locally(self, place: Place, tree: Tree, scope: Scope, name: str) -> None:
        if self._is_new((scope, name)):
            self.locals.setdefault(tree, set()).add(name)
            self._add(((tree, use) for use in self._named.variable(tree, scope, name)), place.attributes)

    def _make(self, place: Place, function: cst.FunctionDef) -> None:
        """A function returns the value."""
        if class_of(place.tree, function) is not None:
            place = place._replace(attributes=place.attributes + 1)
        name = function.name.value
        if place.attributes > _FAR or not self._is_new(("made by", name)):
            return
        found: Sequence[tuple[Tree, cst.BaseExpression]]
        if class_of(place.tree, function) is None:
            found = self._named.definition(self._named.program.known_as(name))
        else:
            named = self._named.attributes(name)
            found = named if len(named) <= _MOST else ()
        for tree, use in found:
            call = tree.parents[use]
            if isinstance(call, cst.Call) and call.func is use:
                self.places.append(place._replace(tree=tree, node=call))

    def _pass(self, place: Place, argument: cst.Arg) -> None:
        call = place.tree.parents[argument]
        if not isinstance(call, cst.Call):
            return
        if last_name(call.func) in _HANDING_ON:
            self.places.append(place._replace(node=call))
            return
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in _FILLING:
            self._name(place, call.func.value)
            return
        for tree, called in self._targets(place.tree, call.func):
            filled = _filled(tree, called, call.args.index(argument), argument)
            if filled is not None:
                self._name_locally(place, tree, tree.scope_of[filled], filled.name.value)


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
