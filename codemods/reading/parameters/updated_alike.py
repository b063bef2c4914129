"""`for e, p in zip(ema.parameters(), model.parameters()): e.mul_(d).add_(p, alpha=1 - d)`, of two summoned models.

Each parameter is split by rows over the same ranks, whatever unit it is in: pieces of the same elements meet, and
nothing has to be gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.code.enclosing import call_given, contains, enclosing, is_label
from codemods.reading.code.shapes import called_on, is_call_to
from codemods.reading.wraps.process_groups import is_over_all

_METHODS = frozenset({"add_", "mul_", "sub_", "div_", "lerp_", "copy_"})
"""Of which each reads, of a tensor that it is given, the element that it changes."""
_SAME_ELEMENTS = frozenset({"data", "detach", "clone", "float"})
_OPERATORS = (cst.Add, cst.Subtract, cst.Multiply, cst.Divide)
_OF_NUMBERS = ("min", "max", "float", "pow")

Test = Callable[[cst.BaseExpression], bool]
"""Of an expression: whether it is a parameter."""


def updated_alike(call: cst.Call, models: Sequence[cst.BaseExpression], ctx: Context) -> cst.BaseExpression | None:
    """The model whose parameters change, where `call` gives those of one of the two; None where not all is seen."""
    pair = call_given(call, ctx)
    loop = ctx.parent(pair) if pair is not None else None
    if not is_call_to(pair, "zip") or len(pair.args) != 2 or not isinstance(loop, cst.For) or loop.iter is not pair:
        return None
    given = [whose(argument.value, "parameters", models, ctx) for argument in pair.args]
    names = [e.value for e in loop.target.elements] if isinstance(loop.target, cst.Tuple) else []
    first, second = given
    if first is None or second is None or first is second or len(names) != 2:
        return None
    if not all(isinstance(name, cst.Name) for name in names) or not are_sharded_alike((first, second), ctx):
        return None
    texts = [ctx.code(name) for name in names]
    block = enclosing(ctx, loop, cst.With) or loop
    inner = (node for node in ctx.inside(block.body) if isinstance(node, cst.Name) and node.value in texts)
    uses = [name for name in inner if name not in names and not is_label(name, ctx)]
    calls = [node.value for node in ctx.inside(loop.body) if isinstance(node, cst.Expr)]
    changed, both = _named(texts[0]), _named(*texts)
    seen = [each for each in calls if is_update(each, changed, both, ctx)]
    is_all = bool(uses) and all(any(contains(ctx, each, use) for each in seen) for use in uses)
    return first if is_all else None


def are_sharded_alike(models: Sequence[cst.BaseExpression], ctx: Context) -> bool:
    """Whether all of the parameters of each are split over all ranks."""
    if ctx.mentions("NO_SHARD", "ignored_modules", "ignored_states", "ignored_parameters"):
        return False
    return all(ctx.kinds(model) == {ModelKind.FSDP} and is_over_all(ctx, model) for model in models)


def _named(*names: str) -> Test:
    return lambda node: isinstance(node, cst.Name) and node.value in names


def whose(
    value: cst.BaseExpression, method: str, models: Sequence[cst.BaseExpression], ctx: Context
) -> cst.BaseExpression | None:
    """The model of `model.parameters()`, or of another method."""
    owner = called_on(value, method)
    text = ctx.code(owner).removesuffix(".module") if owner is not None else ""
    is_bare = isinstance(value, cst.Call) and not value.args
    return next((model for model in models if is_bare and ctx.code(model) == text), None)


def is_update(call: cst.BaseExpression, changed: Test, both: Test, ctx: Context) -> bool:
    """`e.data.mul_(d).add_(p.data, alpha=1 - d)`: `changed` is asked about `e`, `both` about either of the two."""
    node, is_changed = call, False
    while isinstance(node, (cst.Call, cst.Attribute)):
        if isinstance(node, cst.Attribute):
            if node.attr.value not in {"data", "detach", *_METHODS}:
                return False
            is_changed |= node.attr.value in _METHODS
            node = node.value
            continue
        if not all(_is_by_element(each.value, both, ctx) and not each.star for each in node.args):
            return False
        node = node.func
    return is_changed and changed(node)


def _is_by_element(value: cst.BaseExpression, both: Test, ctx: Context) -> bool:
    """Whether it is a number, or a calculation with parameters of the pair that goes element by element."""
    if isinstance(value, cst.BinaryOperation):
        sides = (value.left, value.right)
        return isinstance(value.operator, _OPERATORS) and all(_is_by_element(side, both, ctx) for side in sides)
    if isinstance(value, cst.UnaryOperation):
        return _is_by_element(value.expression, both, ctx)
    inner: cst.BaseExpression = value
    while True:
        if isinstance(inner, cst.Attribute) and inner.attr.value in _SAME_ELEMENTS:
            inner = inner.value
        elif isinstance(inner, cst.Call) and not inner.args:
            inner = inner.func
        else:
            break
    return both(inner) or isinstance(value, cst.BaseNumber) or _may_be_number(value, ctx)


def _may_be_number(value: cst.BaseExpression, ctx: Context) -> bool:
    """Whether it is seen to be no tensor: what is passed in, or set, for parameters of any shape is a number."""
    if not isinstance(value, (cst.Name, cst.Attribute)):
        return False
    seen = (cst.BaseNumber, cst.Param, cst.Attribute, cst.BinaryOperation)
    return all(
        origin.node is None or isinstance(origin.node, seen) or is_call_to(origin.node, *_OF_NUMBERS)
        for origin in ctx.origins(value)
    )
