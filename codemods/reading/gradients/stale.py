"""Where frozen parameters may keep gradients: a training of phases, each with an optimizer of what it trains alone."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import contains
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
    inside = ctx.inside(loop.body)
    each_turn = (node for node in inside if isinstance(node, cst.Call) and not _is_in_some_turns(node, loop, ctx))
    made = ((where, each) for call in each_turn for where, each in _run(call, ctx) if isinstance(each, cst.Call))
    if not any(is_optimizer(where, call) for where, call in made):
        return False
    run = [each for node in inside for each in _run(node, ctx)]
    flags = (flag_set(where, each) for where, each in run if isinstance(each, (cst.Assign, cst.Call)))
    cleared = [follows_step(each, where) for where, each in run if isinstance(each, cst.Call) and _clears(each)]
    return any(flag not in {None, "True"} for flag in flags) and bool(cleared) and not any(cleared)


def _is_in_some_turns(call: cst.Call, loop: cst.For | cst.While, ctx: Context) -> bool:
    """Whether it stands under a test that has no other way, as what is made once more at some step does."""
    tests = (outer for outer in ctx.ancestors(call) if isinstance(outer, cst.If) and outer.orelse is None)
    return any(contains(ctx, loop, test) for test in tests)


def _run(node: cst.CSTNode, ctx: Context) -> Iterator[tuple[Context, cst.CSTNode]]:
    """What stands in a loop, and in the functions of the program that it calls."""
    yield ctx, node
    for where, function in ctx.runs(node) if isinstance(node, cst.Call) else ():
        yield from ((where, each) for each in where.inside(function.body))


def _clears(call: cst.Call) -> bool:
    return called_on(call, "zero_grad") is not None
