"""Where frozen parameters may keep gradients: a training of phases, each with an optimizer of what it trains alone."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.shapes import called_on
from codemods.reading.gradients.unsynced import follows_step
from codemods.reading.models.frozen import flag_set
from codemods.reading.optimizers.makers import is_optimizer

_DEPTH = 2
"""Callers that are followed up from a clipping."""


def may_have_stale_gradients(node: cst.CSTNode, ctx: Context, depth: int = _DEPTH) -> bool:
    """Whether each turn of a loop around, of the callers too, freezes some parameters and makes a new optimizer.

    Of the last turn's gradients its `zero_grad` clears those alone that it trains. Not where each step is followed by
    one, that clears them before.
    """
    loops = [outer for outer in ctx.ancestors(node) if isinstance(outer, (cst.For, cst.While))]
    if any(_makes_phase(loop, ctx) for loop in loops):
        return True
    return depth > 0 and any(may_have_stale_gradients(call, where, depth - 1) for where, call in ctx.callers(node))


def _makes_phase(loop: cst.For | cst.While, ctx: Context) -> bool:
    if not ctx.mentions("requires_grad", "requires_grad_"):
        return False
    run = list(_run_in(loop, ctx))
    calls = [(where, each) for where, each in run if isinstance(each, cst.Call)]
    if not any(is_optimizer(where, call) for where, call in calls):
        return False
    flags = (flag_set(where, each) for where, each in run if isinstance(each, (cst.Assign, cst.Call)))
    cleared = [follows_step(call, where) for where, call in calls if called_on(call, "zero_grad") is not None]
    return any(flag not in {None, "True"} for flag in flags) and bool(cleared) and not any(cleared)


def _run_in(loop: cst.For | cst.While, ctx: Context) -> Iterator[tuple[Context, cst.CSTNode]]:
    """What stands in a loop, and in the functions of the program that it calls."""
    for node in ctx.inside(loop.body):
        yield ctx, node
        for where, function in ctx.runs(node) if isinstance(node, cst.Call) else ():
            yield from ((where, each) for each in where.inside(function.body))
