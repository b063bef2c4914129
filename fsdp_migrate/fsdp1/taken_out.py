"""What a function takes out of the model that it is given: `unwrap(model)`, of which tests of `model` speak as well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import libcst as cst

from ..pyanalysis.definitions import returns

if TYPE_CHECKING:
    from .program_model import FileContext


def model_given(file: FileContext, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """`model` of `unwrap(model)`, or of a name for it, where the function gives back that, or its `.module`."""
    if isinstance(node, cst.Name):
        bound = file.bound(node) or ()
        here = [value for where, value in bound if where.path == file.path and file.scope(value) is file.scope(node)]
        node = here[0] if len(bound) == len(here) == 1 else node
    functions = file.runs(node) if isinstance(node, cst.Call) else ()
    if len(functions) != 1:
        return None
    where, function = functions[0]
    results = returns(where.tree, function)
    names = {_root(leaf) for value in results for leaf in _leaves(value)}
    name = names.pop() if len(names) == 1 else None
    if name is None or not all(_is_of_its_own(where, each, name) for each in where.inside(function)):
        return None
    given = where.passed_to(function.body, name)
    return next((value for other, call, value in given if call is node and other.path == file.path), None)


def _leaves(value: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    if isinstance(value, cst.IfExp):
        yield from _leaves(value.body)
        yield from _leaves(value.orelse)
    else:
        yield value


def _root(value: cst.BaseExpression) -> str | None:
    """`model` of `model.module`."""
    while isinstance(value, cst.Attribute) and value.attr.value == "module":
        value = value.value
    return value.value if isinstance(value, cst.Name) and value.value != "None" else None


def _is_of_its_own(file: FileContext, node: cst.CSTNode, name: str) -> bool:
    """Whether a name is bound to nothing else here than to what is in it: `model = model.module`."""
    if not isinstance(node, cst.Name) or node.value != name:
        return True
    target = file.parent(node)
    if isinstance(target, (cst.For, cst.NamedExpr, cst.AugAssign, cst.AsName)) and node is not getattr(
        target, "iter", None
    ):
        return False
    statement = file.parent(target) if isinstance(target, cst.AssignTarget) else None
    return statement is None or (isinstance(statement, cst.Assign) and _root(statement.value) == name)
