"""Models that a file freezes as a whole, and never thaws: `for p in teacher.parameters(): p.requires_grad = False`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.arguments import by_parameter
from codemods.reading.code.enclosing import enclosing
from codemods.reading.code.once import once
from codemods.reading.code.shapes import called_on, parameter_names
from codemods.reading.code.words import last_name, words
from codemods.reading.models.frozen import flag_set, told_to

_FREEZES = frozenset({"freeze", "requires", "frozen"})
"""Words of functions that freeze what they are given: `requires_grad(ema, False)`."""


def is_frozen_here(model: str, ctx: Context) -> bool:
    """Whether a model of this name runs without gradients, for no parameter of it has one."""
    frozen, thawed = _told(ctx)
    return model in frozen and model not in thawed


@once
def _told(ctx: Context) -> tuple[frozenset[str], frozenset[str]]:
    """What is frozen, and what may be thawed."""
    if not ctx.mentions("requires_grad", "requires_grad_", *_FREEZES):
        return frozenset(), frozenset()
    said = list(_settings(ctx, [*ctx.nodes(cst.Call), *ctx.nodes(cst.Assign)]))
    said += [each for call in ctx.nodes(cst.Call) for each in _by_function(ctx, call)]
    return frozenset(n for n, flag in said if flag == "False"), frozenset(n for n, flag in said if flag != "False")


def _settings(ctx: Context, nodes: list[cst.Call | cst.Assign]) -> Iterator[tuple[str, str]]:
    """The modules whose flag is set for all of their parameters, and what it is set to."""
    for node in nodes:
        flag = flag_set(ctx, node)
        if flag is None:
            continue
        told = node.func if isinstance(node, cst.Call) else node.targets[0].target
        owner = told_to(cst.ensure_type(told, cst.Attribute).value)
        loop = enclosing(ctx, node, cst.For)
        if loop is None or ctx.code(loop.target) != ctx.code(owner):
            yield ctx.code(owner), flag
            continue
        block = enclosing(ctx, node, cst.IndentedBlock)
        read = called_on(loop.iter, "parameters")
        if read is not None and (flag != "False" or block in (loop.body, enclosing(ctx, loop, cst.IndentedBlock))):
            yield ctx.code(told_to(read)), flag


def _by_function(ctx: Context, call: cst.Call) -> Iterator[tuple[str, str]]:
    """`requires_grad(ema, False)` and `freeze(teacher)`, by what the function does to its parameter."""
    if not words(last_name(call.func)) & _FREEZES or not call.args:
        return
    for where, function in ctx.runs(call):
        given = by_parameter(call.args, parameter_names(function)) or {}
        inside = [node for node in where.inside(function.body) if isinstance(node, (cst.Call, cst.Assign))]
        for name, flag in _settings(where, inside):
            if name in given:
                chosen = given.get(flag)
                yield ctx.code(given[name].value), flag if chosen is None else ctx.code(chosen.value)
