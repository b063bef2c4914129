"""Scopes and the names bound in them: what Python's own symbol table knows, with the nodes kept.

LibCST's ScopeProvider answers more and costs five times the parse; the tool asks for one name at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import libcst as cst

from .syntax import AnnotatedAssign


class Binds(Enum):
    """How a name got its value."""

    VALUE = "value"
    """`x = value`, `x: T = value`, `(x := value)`; with a path a part of it: `a, x = value`, `for x in value`."""
    ENTERED = "entered"
    """`with value as x`: what the context manager gives."""
    IMPORT = "import"
    PARAMETER = "parameter"
    DEFINITION = "definition"
    OTHER = "other"
    """`del`, an augmented assignment, an exception: the value is not followed."""

    __hash__ = object.__hash__  # that of an enum is written in Python


class Some(Enum):
    """Which elements of a value, where there is no one index."""

    EACH = "each"
    REST = "rest"
    """What a starred target takes."""
    ANY = "any"
    """An item of a dict, under whatever key."""

    __hash__ = object.__hash__


EACH, REST, ANY = Some.EACH, Some.REST, Some.ANY
Step = int | str | Some
Path = tuple[Step, ...]
"""A part of a value: the element at an index or key, then a part of that, and so on."""


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """One place where a name is bound."""

    name: str
    how: Binds
    node: cst.CSTNode
    """The statement, parameter, import alias or definition that binds."""
    value: cst.BaseExpression | None = None
    path: Path = ()
    """Which part of the value, outermost step first."""


@dataclass(slots=True, eq=False)
class Scope:
    """A module, class, function or lambda, and the names it binds, in the order of the text."""

    node: cst.CSTNode
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    outer_names: set[str] = field(default_factory=set)
    """Declared `global` or `nonlocal` here."""

    def add(self, binding: Binding) -> None:
        """Record a binding; of a name declared `global` or `nonlocal`, in the scope that it belongs to."""
        if binding.name in self.outer_names and self.parent is not None:
            self._outer(binding.name).add(binding)
            return
        self.bindings.setdefault(binding.name, []).append(binding)

    def _outer(self, name: str) -> Scope:
        scope = self.parent
        while scope is not None and scope.parent is not None and name not in scope.bindings:
            scope = scope.parent
        assert scope is not None
        return scope

    def lookup(self, name: str) -> Scope | None:
        """The scope that a name used here is bound in, by Python's rules: a class body is seen only from itself."""
        scope: Scope | None = self
        while scope is not None:
            visible = scope is self or not isinstance(scope.node, cst.ClassDef)
            if visible and name in scope.bindings and name not in scope.outer_names:
                return scope
            scope = scope.parent
        return None


def bind(scope: Scope, node: cst.CSTNode) -> None:
    """Record what one node binds in the scope it stands in (a parameter: in the scope of its own function)."""
    find = _BINDERS.get(type(node))
    if find is not None:
        for binding in find(node):
            scope.add(binding)
    elif isinstance(node, (cst.Global, cst.Nonlocal)):
        scope.outer_names.update(item.name.value for item in node.names)


def is_binding(kind: type[cst.CSTNode]) -> bool:
    """Whether nodes of this type can bind a name, or say where it is bound."""
    return kind in _BINDERS or issubclass(kind, (cst.Global, cst.Nonlocal))


def _assign(node: cst.Assign) -> Iterator[Binding]:
    for target in node.targets:
        yield from _assigned(target.target, node, node.value)


def _annotated(node: cst.AnnAssign) -> Iterator[Binding]:
    if node.value is not None:
        yield from _assigned(node.target, node, node.value)


def _walrus(node: cst.NamedExpr) -> Iterator[Binding]:
    yield from _assigned(node.target, node, node.value)


def _target(node: cst.AugAssign) -> Iterator[Binding]:
    yield from _opaque(node.target, node)


def turns(node: cst.For | cst.CompFor) -> Iterator[Binding]:
    """What a loop binds; what a comprehension binds is seen in it alone, and so belongs to no scope here."""
    yield from _assigned(node.target, node, node.iter, (EACH,))


def _as_name(node: cst.WithItem) -> Iterator[Binding]:
    if node.asname is None:
        return
    if isinstance(node.asname.name, cst.Name):
        yield Binding(node.asname.name.value, Binds.ENTERED, node, node.item)
    else:
        yield from _opaque(node.asname.name, node)


def _caught(node: cst.ExceptHandler) -> Iterator[Binding]:
    if node.name is not None:
        yield from _opaque(node.name.name, node)


def _matched(node: cst.Match) -> Iterator[Binding]:
    for case in node.cases:
        yield from _captured(case.pattern, node, ())


def _captured(pattern: cst.CSTNode, node: cst.Match, path: Path) -> Iterator[Binding]:
    """What a pattern binds. Attributes of what a class pattern matches are not followed."""
    if isinstance(pattern, cst.MatchAs):
        if pattern.name is not None:
            yield Binding(pattern.name.value, Binds.VALUE, node, node.subject, path)
        if pattern.pattern is not None:
            yield from _captured(pattern.pattern, node, path)
    elif isinstance(pattern, cst.MatchOr):
        for each in pattern.patterns:
            yield from _captured(each.pattern, node, path)
    elif isinstance(pattern, (cst.MatchList, cst.MatchTuple)):
        for index, item in enumerate(pattern.patterns):
            if isinstance(item, cst.MatchSequenceElement):
                yield from _captured(item.value, node, (*path, index))
            elif item.name is not None:
                yield Binding(item.name.value, Binds.VALUE, node, node.subject, (*path, REST))
    elif isinstance(pattern, cst.MatchMapping):
        for element in pattern.elements:
            key = element.key.evaluated_value if isinstance(element.key, cst.SimpleString) else ANY
            yield from _captured(element.pattern, node, (*path, str(key) if key is not ANY else ANY))
    elif isinstance(pattern, cst.MatchClass):
        inside = [*(each.value for each in pattern.patterns), *(each.pattern for each in pattern.kwds)]
        for inner in inside:
            yield from (Binding(found.name, Binds.OTHER, node) for found in _captured(inner, node, path))


def _defined(node: cst.FunctionDef | cst.ClassDef) -> Iterator[Binding]:
    yield Binding(node.name.value, Binds.DEFINITION, node)


def _parameter(node: cst.Param) -> Iterator[Binding]:
    yield Binding(node.name.value, Binds.PARAMETER, node)


def _import(node: cst.ImportAlias) -> Iterator[Binding]:
    yield Binding(_bound_name(node), Binds.IMPORT, node)


_BINDERS: Mapping[type[cst.CSTNode], Callable[[Any], Iterator[Binding]]] = {
    cst.Assign: _assign,
    AnnotatedAssign: _assign,
    cst.AnnAssign: _annotated,
    cst.NamedExpr: _walrus,
    cst.AugAssign: _target,
    cst.For: turns,
    cst.WithItem: _as_name,
    cst.ExceptHandler: _caught,
    cst.Match: _matched,
    cst.FunctionDef: _defined,
    cst.ClassDef: _defined,
    cst.Param: _parameter,
    cst.ImportAlias: _import,
}


def _assigned(target: cst.CSTNode, node: cst.CSTNode, value: cst.BaseExpression, path: Path = ()) -> Iterator[Binding]:
    for part, at in parts(target, path):
        if isinstance(part, cst.Name):
            yield Binding(part.value, Binds.VALUE, node, value, at)


def parts(target: cst.CSTNode, path: Path = ()) -> Iterator[tuple[cst.CSTNode, Path]]:
    """The targets in a target, each with the part of the value that it takes."""
    if not isinstance(target, (cst.Tuple, cst.List)):
        yield target, path
        return
    starred = next((i for i, e in enumerate(target.elements) if isinstance(e, cst.StarredElement)), None)
    for index, element in enumerate(target.elements):
        if starred is None or index < starred:
            step: Step = index
        else:
            step = REST if index == starred else index - len(target.elements)
        yield from parts(element.value, (*path, step))


def _opaque(target: cst.CSTNode, node: cst.CSTNode) -> Iterator[Binding]:
    if isinstance(target, cst.Name):
        yield Binding(target.value, Binds.OTHER, node)
    elif isinstance(target, (cst.Tuple, cst.List)):
        for element in target.elements:
            yield from _opaque(element.value, node)


def _bound_name(alias: cst.ImportAlias) -> str:
    """The name an import binds: `import a.b` binds `a`."""
    if alias.asname is not None:
        return cst.ensure_type(alias.asname.name, cst.Name).value
    first: cst.BaseExpression = alias.name
    while isinstance(first, cst.Attribute):
        first = first.value
    return cst.ensure_type(first, cst.Name).value
