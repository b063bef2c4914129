"""Which calls have come before another one, in the function around it, and in the turns of its loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from codemods.api import Context


def straight(call: cst.Call, ctx: Context) -> list[cst.Call]:
    """The calls that have ended before this one, in a function that is run from its start; the last one last."""
    start = ctx.span(call)[0]
    return [other for other in _in_order(call, ctx) if ctx.span(other)[1] <= start]


def last_turns(call: cst.Call, ctx: Context) -> Iterator[list[cst.Call]]:
    """For each loop around a call: what ran before it since it last ran. The end of a body lies before its start."""
    start, end = ctx.span(call)
    for loop in ctx.ancestors(call):
        if isinstance(loop, (cst.FunctionDef, cst.Lambda)):
            return
        if isinstance(loop, (cst.For, cst.While)) and ctx.span(loop.body)[0] <= start:
            first, last = ctx.span(loop.body)
            spans = [(other, *ctx.span(other)) for other in _in_order(call, ctx)]
            inside = [other for other, begins, ends in spans if first <= begins and ends <= last]
            behind = [other for other in inside if ctx.span(other)[0] >= end]
            yield [*behind, *(other for other in inside if ctx.span(other)[1] <= start)]


def _in_order(call: cst.Call, ctx: Context) -> list[cst.Call]:
    """The calls of the function that a run can come to which comes to this one."""
    calls = (other for other in ctx.calls(ctx.scope(call)) if not ctx.excludes(call, other))
    return sorted(calls, key=lambda other: ctx.span(other)[1])


def last_index(calls: list[cst.Call], is_one: Callable[..., bool], *given: object) -> int:
    """The place of the last of some calls that is one; -1 without one."""
    return max((index for index, call in enumerate(calls) if is_one(call, *given)), default=-1)


def within(entered: cst.BaseExpression, ctx: Context) -> Iterator[cst.Call]:
    """The calls in the block of `with entered(…):`."""
    blocks = [outer for outer in ctx.ancestors(entered) if isinstance(outer, cst.With)]
    around = [block for block in blocks if any(item.item is entered for item in block.items)]
    yield from (node for block in around for node in ctx.inside(block.body) if isinstance(node, cst.Call))


def is_behind_yield(call: cst.CSTNode, function: cst.FunctionDef, ctx: Context) -> bool:
    """Whether a context manager comes here when its block is left."""
    return any(ctx.span(each)[1] <= ctx.span(call)[0] for each in yields(function, ctx))


def yields(scope: cst.CSTNode, ctx: Context) -> list[cst.Yield]:
    """Where a generator, or a context manager, hands on."""
    return [node for node in ctx.inside(scope) if isinstance(node, cst.Yield) and ctx.scope(node) is scope]
