"""Where a function takes its model out of the wrapper several times: one variable for all of them."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.onward import set_in

_NAMES = ("module", "inner_model", "unwrapped_model")


@dataclass(frozen=True)
class Local:
    """The variable, where it is set, and what it stands for."""

    name: str
    statement: cst.CSTNode
    uses: tuple[cst.Attribute, ...]


def local_of(held: frozenset[ModelKind], node: cst.Attribute, ctx: Context) -> Local | None:
    """The variable for `model.module`; None where it is read once, or the model can be another one in between."""
    function, model = ctx.scope(node), node.value
    if not isinstance(function, cst.FunctionDef) or not isinstance(model, cst.Name):
        return None
    if model.value in set_in(function.body):
        return None
    attributes = (each for each in ctx.inside(function.body) if isinstance(each, cst.Attribute))
    uses = tuple(each for each in attributes if _is_same(each, node, function, ctx))
    taken = {each.value for each in ctx.inside(function) if isinstance(each, cst.Name) and not _is_attribute(each, ctx)}
    name = next((name for name in _NAMES if name not in taken), None)
    if len(uses) < 2 or name is None:
        return None
    statement = _statement_around(uses, ctx)
    if statement is None or (not held <= {ModelKind.FSDP, ModelKind.DDP} and not _is_simple(statement)):
        return None
    return Local(name, statement, uses)


def _is_same(each: cst.Attribute, node: cst.Attribute, function: cst.FunctionDef, ctx: Context) -> bool:
    if ctx.code(each) != ctx.code(node) or ctx.scope(each) is not function:
        return False
    return not isinstance(ctx.parent(each), cst.AssignTarget) and {ModelKind.FSDP, ModelKind.DDP} <= ctx.kinds(
        each.value
    )


def _is_attribute(name: cst.Name, ctx: Context) -> bool:
    """`module` of `model.module`."""
    holder = ctx.parent(name)
    return isinstance(holder, cst.Attribute) and holder.attr is name


def _statement_around(uses: tuple[cst.Attribute, ...], ctx: Context) -> cst.CSTNode | None:
    """The statement with the first use, in the innermost block that holds them all."""
    common: list[cst.CSTNode] = [node for node in ctx.ancestors(uses[0]) if isinstance(node, cst.IndentedBlock)]
    for use in uses[1:]:
        around = set(ctx.ancestors(use))
        common = [block for block in common if block in around]
    inner: cst.CSTNode = uses[0]
    for outer in ctx.ancestors(uses[0]):
        if common and outer is common[0]:
            return inner
        inner = outer
    return None


def _is_simple(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine)
