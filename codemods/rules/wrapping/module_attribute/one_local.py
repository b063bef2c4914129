"""Where a function takes its model out of the wrapper several times: one variable for all of them."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.code.onward import set_in

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
    if not isinstance(function, cst.FunctionDef) or not isinstance(function.body, cst.IndentedBlock):
        return None
    if not isinstance(model, cst.Name) or model.value in set_in(function.body):
        return None
    attributes = (each for each in ctx.inside(function.body) if isinstance(each, cst.Attribute))
    uses = tuple(each for each in attributes if _is_same(each, node, function, ctx))
    if node not in uses:
        return None
    taken = {each.value for each in ctx.inside(function) if isinstance(each, cst.Name) and not _is_attribute(each, ctx)}
    name = next((name for name in _NAMES if name not in taken), None)
    if name is None:
        return None
    is_wrapped = held <= {ModelKind.FSDP, ModelKind.DDP}
    blocks = [outer for outer in ctx.ancestors(node) if isinstance(outer, cst.IndentedBlock)]
    for block in reversed(blocks[: blocks.index(function.body) + 1]):
        inside = set(ctx.inside(block))
        own = tuple(use for use in uses if use in inside)
        statement = _statement_in(block, own[0], ctx)
        is_any = is_wrapped and not any(_is_asked_about(use, statement, ctx) for use in own)
        if len(own) > 1 and (is_any or _always_reads(statement, own[0], ctx)):
            return Local(name, statement, own)
    return None


def _is_same(each: cst.Attribute, node: cst.Attribute, function: cst.FunctionDef, ctx: Context) -> bool:
    if ctx.code(each) != ctx.code(node) or ctx.scope(each) is not function:
        return False
    return not isinstance(ctx.parent(each), cst.AssignTarget) and {ModelKind.FSDP, ModelKind.DDP} <= ctx.kinds(
        each.value
    )


def _is_asked_about(use: cst.Attribute, statement: cst.CSTNode, ctx: Context) -> bool:
    """Whether a condition in the statement asks something of the model first: `if model is not None:`."""
    asked = ctx.code(use.value)
    for outer in ctx.ancestors(use):
        if isinstance(outer, (cst.If, cst.IfExp, cst.While)) and use not in ctx.inside(outer.test):
            if any(isinstance(each, cst.Name) and each.value == asked for each in ctx.inside(outer.test)):
                return True
        if isinstance(outer, cst.BooleanOperation) and use not in ctx.inside(outer.left):
            if any(isinstance(each, cst.Name) and each.value == asked for each in ctx.inside(outer.left)):
                return True
        if outer is statement:
            return False
    return False


def _is_attribute(name: cst.Name, ctx: Context) -> bool:
    """`module` of `model.module`."""
    holder = ctx.parent(name)
    return isinstance(holder, cst.Attribute) and holder.attr is name


def _statement_in(block: cst.IndentedBlock, use: cst.Attribute, ctx: Context) -> cst.CSTNode:
    """The statement of a block that a use stands in."""
    around = {use, *ctx.ancestors(use)}
    return next(statement for statement in block.body if statement in around)


def _always_reads(statement: cst.CSTNode, use: cst.Attribute, ctx: Context) -> bool:
    """Whether a statement that is reached comes to a use of it: what else there is may not be wrapped."""
    if isinstance(statement, (cst.If, cst.While)):
        return use in ctx.inside(statement.test)
    return isinstance(statement, cst.SimpleStatementLine) or (
        isinstance(statement, cst.For) and use in ctx.inside(statement.iter)
    )
