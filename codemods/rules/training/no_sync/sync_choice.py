"""How a program chooses between `model.no_sync()` and a context that does nothing, and where it enters that."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import enclosing
from codemods.reading.code.shapes import only_target
from codemods.reading.gradients.unsynced import computes_gradients

_LINES = (cst.SimpleStatementLine,)


@dataclass(frozen=True)
class SyncChoice:
    """One `with` whose body accumulates, always or under a condition."""

    block: cst.With
    item: cst.WithItem
    """What of the `with` is the context."""
    test: cst.BaseExpression | None
    """What is asked; None where it always accumulates."""
    accumulates: bool
    """The answer on which it does."""
    chosen: cst.CSTNode | None = None
    """The statement above that chooses, where the `with` enters a name."""
    default: cst.CSTNode | None = None
    """The statement above it that sets the name to the context that does nothing."""


def sync_choice(attribute: cst.Attribute, ctx: Context) -> SyncChoice | None:
    """The choice that a `model.no_sync` belongs to; None for any other use of it."""
    call = ctx.parent(attribute)
    is_called = isinstance(call, cst.Call) and call.func is attribute and not call.args
    value: cst.CSTNode = call if is_called and call is not None else attribute
    holder = ctx.parent(value)
    test, accumulates = None, True
    if isinstance(holder, cst.IfExp) and holder.test is not value:
        other = holder.orelse if value is holder.body else holder.body
        if not _does_nothing(other, is_called, ctx):
            return None
        test, accumulates = holder.test, value is holder.body
        value, holder = holder, ctx.parent(holder)
    if isinstance(holder, cst.WithItem):
        block = ctx.parent(holder)
        is_entered = is_called and isinstance(block, cst.With)
        return SyncChoice(cst.ensure_type(block, cst.With), holder, test, accumulates) if is_entered else None
    name = only_target(holder)
    if not isinstance(holder, cst.Assign) or not isinstance(name, cst.Name):
        return None
    return _by_name(name, holder, test, accumulates, is_called, ctx)


def _by_name(
    name: cst.Name,
    assign: cst.Assign,
    test: cst.BaseExpression | None,
    accumulates: bool,
    is_called: bool,
    ctx: Context,
) -> SyncChoice | None:
    """`context = …` above, in one statement or an `if`, and `with context:` behind it in the same block."""
    line = ctx.parent(assign)
    if not isinstance(line, _LINES) or len(line.body) != 1:
        return None
    chosen: cst.CSTNode = line
    default = None
    others = [node for node in _assignments(name.value, ctx.scope(assign), ctx) if node is not assign]
    if test is None:
        if len(others) != 1 or not _does_nothing(others[0].value, is_called, ctx):
            return None
        branch = enclosing(ctx, assign, cst.If)
        if branch is None or isinstance(ctx.parent(branch), cst.If):
            return None
        branches = [branch.body, *([branch.orelse.body] if isinstance(branch.orelse, cst.Else) else [])]
        if [len(each.body) for each in branches] != [1] * len(branches) or isinstance(branch.orelse, cst.If):
            return None
        holders = [ctx.parent(ctx.parent(each) or each) for each in (assign, others[0])]
        if len(branches) == 1:
            default = ctx.parent(others[0])
            if branches[0] is not holders[0] or not _stands_above(default, branch, ctx):
                return None
        elif set(branches) != set(holders):
            return None
        chosen, test, accumulates = branch, branch.test, holders[0] is branch.body
    elif others:
        return None
    uses = [node for node in ctx.inside(ctx.scope(assign)) if isinstance(node, cst.Name) and node.value == name.value]
    uses = [node for node in uses if not isinstance(ctx.parent(node), cst.AssignTarget)]
    entered = ctx.parent(uses[0]) if len(uses) == 1 else None
    item = ctx.parent(entered) if isinstance(entered, cst.Call) and not is_called else entered
    block = ctx.parent(item) if isinstance(item, cst.WithItem) else None
    if not isinstance(block, cst.With) or not isinstance(item, cst.WithItem) or not _stands_above(chosen, block, ctx):
        return None
    return SyncChoice(block, item, test, accumulates, chosen, default)


def _stands_above(first: cst.CSTNode | None, second: cst.CSTNode, ctx: Context) -> bool:
    """Whether both stand in one block, and nothing goes backward between them."""
    block = ctx.parent(second)
    if first is None or block is not ctx.parent(first) or not isinstance(block, (cst.IndentedBlock, cst.Module)):
        return False
    body: list[cst.CSTNode] = list(block.body)
    between = body[body.index(first) + 1 : body.index(second)]
    return first in body[: body.index(second)] and not any(
        computes_gradients(node) for statement in between for node in ctx.inside(statement)
    )


def _assignments(name: str, scope: cst.CSTNode, ctx: Context) -> list[cst.Assign]:
    targets = [node for node in ctx.inside(scope) if isinstance(node, cst.AssignTarget)]
    named = [node for node in targets if isinstance(node.target, cst.Name) and node.target.value == name]
    return [cst.ensure_type(ctx.parent(node), cst.Assign) for node in named]


def _does_nothing(other: cst.BaseExpression, is_called: bool, ctx: Context) -> bool:
    """`nullcontext()` beside `model.no_sync()`, `nullcontext` beside `model.no_sync`."""
    if is_called:
        if not isinstance(other, cst.Call) or other.args:
            return False
        other = other.func
    return (ctx.dotted(other) or "").endswith("nullcontext")
