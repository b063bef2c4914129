"""Where the names of a file are used, and whether they mean the same in two places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from .flow import reaching
from .scopes import Binding
from .tree import Tree

Reference = cst.Name | cst.Attribute
"""An expression that can name something: `nn`, `nn.Linear`."""


def is_whole(tree: Tree, node: Reference) -> bool:
    """Whether a name is an expression by itself: not the `b` of `a.b`, not where it is bound or imported."""
    if isinstance(node, cst.Name):
        imports = (cst.Import, cst.ImportFrom)
        return _is_use(tree, node) and not any(isinstance(outer, imports) for outer in tree.ancestors(node))
    return not isinstance(tree.parents.get(node), cst.AssignTarget)


def uses(tree: Tree, node: cst.CSTNode) -> Sequence[cst.Name]:
    """Where the names can be read that a statement, an import or a parameter binds."""
    bound = set(_bound_by(tree, node))
    names = {binding.name for binding in bound}
    return [
        name
        for name in tree.nodes(cst.Name)
        if name.value in names and _is_use(tree, name) and bound & set(reaching(tree, name, name.value))
    ]


def same_meaning(tree: Tree, expression: cst.BaseExpression, at: cst.CSTNode) -> bool:
    """Whether every name in the expression would mean the same at `at`."""
    own = {binding for node in tree.inside(expression) for binding in _bound_by(tree, node)}
    for name in tree.inside(expression):
        if not isinstance(name, cst.Name) or not _is_use(tree, name):
            continue
        here = set(reaching(tree, name, name.value))
        if here & own:
            continue
        if here != set(reaching(tree, at, name.value)):
            return False
    return True


def _bound_by(tree: Tree, node: cst.CSTNode) -> Iterator[Binding]:
    scope = tree.scope_of.get(node)
    for bindings in scope.bindings.values() if scope is not None else ():
        yield from (binding for binding in bindings if binding.node is node)


def _is_use(tree: Tree, name: cst.Name) -> bool:
    """Not where the name is bound, nor the `b` of `a.b`, nor the keyword of an argument."""
    parent = tree.parents.get(name)
    if isinstance(parent, cst.Attribute):
        return parent.value is name
    if isinstance(parent, cst.Arg):
        return parent.value is name
    if isinstance(parent, (cst.FunctionDef, cst.ClassDef, cst.Param)):
        return parent.name is not name
    while isinstance(parent, (cst.Element, cst.StarredElement, cst.Tuple, cst.List)):  # `a, b = …` binds both
        parent = tree.parents.get(parent)
    return not isinstance(parent, (cst.AssignTarget, cst.ImportAlias, cst.AsName, cst.Global, cst.Nonlocal))
