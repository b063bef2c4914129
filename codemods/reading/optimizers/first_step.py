"""Whether an optimizer has stepped where its state is read: torch makes one that has not take a step, which counts."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.once import once
from codemods.reading.code.shapes import comparison
from codemods.reading.models.class_layout import inits
from codemods.reading.optimizers.makers import is_optimizer

_DEPTH = 4
"""How many functions and callers are followed."""


def may_be_before_first_step(read: cst.Call, optimizer: cst.BaseExpression, ctx: Context) -> bool:
    """Whether the program is seen to make the optimizer, and to come here without a call that could step it."""
    made = frozenset(id(origin.node) for origin in ctx.origins(optimizer) if isinstance(origin.node, cst.Call))
    return not _steps_before(read, made, ctx, _DEPTH)


def _steps_before(node: cst.CSTNode, made: frozenset[int], ctx: Context, depth: int) -> bool:
    """Callers that are not seen are supposed to train first."""
    if any(_steps(call, made, ctx, depth) for call in _run_before(node, ctx)):
        return True
    scope = ctx.scope(node)
    if isinstance(scope, cst.Module) or any(id(call) in made for call in ctx.calls(scope)):
        return False
    callers = ctx.callers(node) if depth else ()
    return all(_steps_before(call, made, where, depth - 1) for where, call in callers)


def _run_before(node: cst.CSTNode, ctx: Context) -> Iterator[cst.Call]:
    """The calls in the same function that stand above, or in a loop around: what an earlier turn ran.

    Not where the first turn comes here as well: at once, or by `if step % every == 0:`.
    """
    start = ctx.span(node)[0]
    first, last = start, start
    tests: list[cst.BaseExpression] = []
    for outer in ctx.ancestors(node):
        if isinstance(outer, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
            break
        if isinstance(outer, cst.If):
            tests.append(outer.test)
        if isinstance(outer, (cst.For, cst.While)) and not all(_holds_at_zero(test) for test in tests):
            first, last = ctx.span(outer)
    for call in ctx.calls(ctx.scope(node)):
        begin, end = ctx.span(call)
        if end <= start or (first <= begin and end <= last and not begin <= start < end):
            yield call


def _holds_at_zero(test: cst.BaseExpression) -> bool:
    """`step % every == 0` and `not step % every`, which are true of the first step, 0."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return _is_remainder(test.expression)
    compared = comparison(test)
    if compared is None or not isinstance(compared[1], cst.Equal) or not _is_remainder(compared[0]):
        return False
    return isinstance(compared[2], cst.Integer) and compared[2].evaluated_value == 0


def _is_remainder(node: cst.BaseExpression) -> bool:
    counts = isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo)
    return counts and isinstance(cst.ensure_type(node, cst.BinaryOperation).left, (cst.Name, cst.Attribute))


@once
def _steps(call: cst.Call, made: frozenset[int], ctx: Context, depth: int) -> bool:
    """`optimizer.step()`, a function that has one, and whatever is handed the optimizer and cannot be followed."""
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "step":
        return not _is_of_another(call.func.value, made, ctx)
    runs = [*ctx.runs(call), *inits(ctx, call)]
    if not runs:
        is_library = (ctx.dotted(call.func) or "").startswith("torch.") or ctx.fsdp1(call.func) is not None
        return not is_library and any(_is_one_of(argument.value, made, ctx) for argument in call.args)
    return depth > 0 and any(
        _steps(inner, made, where, depth - 1)
        for where, function in runs
        for inner in where.inside(function.body)
        if isinstance(inner, cst.Call)
    )


def _is_of_another(optimizer: cst.BaseExpression, made: frozenset[int], ctx: Context) -> bool:
    """Whether it is seen to be an optimizer, and none of these."""
    origins = [(origin.file, origin.node) for origin in ctx.origins(optimizer)]
    return bool(origins) and all(
        isinstance(node, cst.Call) and id(node) not in made and is_optimizer(where, node) for where, node in origins
    )


def _is_one_of(value: cst.BaseExpression, made: frozenset[int], ctx: Context) -> bool:
    return any(id(origin.node) in made for origin in ctx.origins(value))
