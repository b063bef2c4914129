"""Scopes and the names bound in them: what Python's own symbol table knows, with the nodes kept.

LibCST's ScopeProvider answers more and costs five times the parse; the tool asks for one name at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

import libcst as cst


class Binds(Enum):
    """How a name got its value."""

    VALUE = "value"
    """`x = value`, `x: T = value`, `(x := value)`."""
    ITEM = "item"
    """`a, x = value`: the element `index` of the value."""
    IMPORT = "import"
    PARAMETER = "parameter"
    DEFINITION = "definition"
    OTHER = "other"
    """A loop target, `with … as x`, `del`, an augmented assignment: the value is not followed."""


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """One place where a name is bound."""

    name: str
    how: Binds
    node: cst.CSTNode
    """The statement, parameter, import alias or definition that binds."""
    value: cst.BaseExpression | None = None
    index: int = 0


@dataclass(slots=True, eq=False)
class Scope:
    """A module, class, function or lambda, and the names it binds, in the order of the text."""

    node: cst.CSTNode
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    outer_names: set[str] = field(default_factory=set)
    """Declared `global` or `nonlocal` here."""

    def add(self, binding: Binding) -> None:
        self.bindings.setdefault(binding.name, []).append(binding)

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
    for binding in _bindings_of(node):
        scope.add(binding)
    if isinstance(node, (cst.Global, cst.Nonlocal)):
        scope.outer_names.update(item.name.value for item in node.names)


def _bindings_of(node: cst.CSTNode) -> Iterator[Binding]:
    if isinstance(node, cst.Assign):
        for target in node.targets:
            yield from _assigned(target.target, node, node.value)
    elif isinstance(node, cst.AnnAssign) and node.value is not None:
        yield from _assigned(node.target, node, node.value)
    elif isinstance(node, cst.NamedExpr):
        yield from _assigned(node.target, node, node.value)
    elif isinstance(node, cst.AugAssign):
        yield from _opaque(node.target, node)
    elif isinstance(node, (cst.For, cst.CompFor)):
        yield from _opaque(node.target, node)
    elif isinstance(node, cst.WithItem) and node.asname is not None:
        yield from _opaque(node.asname.name, node)
    elif isinstance(node, cst.ExceptHandler) and node.name is not None:
        yield from _opaque(node.name.name, node)
    elif isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        yield Binding(node.name.value, Binds.DEFINITION, node)
    elif isinstance(node, cst.Param):
        yield Binding(node.name.value, Binds.PARAMETER, node)
    elif isinstance(node, cst.ImportAlias):
        yield Binding(_bound_name(node), Binds.IMPORT, node)


def _assigned(target: cst.CSTNode, node: cst.CSTNode, value: cst.BaseExpression) -> Iterator[Binding]:
    if isinstance(target, cst.Name):
        yield Binding(target.value, Binds.VALUE, node, value)
        return
    if not isinstance(target, (cst.Tuple, cst.List)):
        return
    if any(isinstance(element, cst.StarredElement) for element in target.elements):
        yield from _opaque(target, node)
        return
    for index, element in enumerate(target.elements):
        if isinstance(element.value, cst.Name):
            yield Binding(element.value.value, Binds.ITEM, node, value, index)
        else:
            yield from _opaque(element.value, node)


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
