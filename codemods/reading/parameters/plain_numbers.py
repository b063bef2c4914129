"""Numbers of sharded tensors where only plain ones are taken: `torch.tensor([p.norm() for p in …])`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import Formatter

import libcst as cst

from codemods.api import Context, Origin
from codemods.reading.code.enclosing import enclosing
from codemods.reading.gradients.inside import is_squared, is_surely_sharded
from codemods.reading.parameters.reduced import operand_of
from codemods.reading.parameters.sharded_values import is_sharded

Taker = cst.Call | cst.FormattedStringExpression

_MAKERS = frozenset(
    f"torch.{name}" for name in ("DoubleTensor", "FloatTensor", "Tensor", "as_tensor", "asarray", "tensor")
)


@dataclass(frozen=True)
class Number:
    """What is computed of a sharded tensor."""

    file: Context
    tensor: cst.BaseExpression
    """`p.grad` of `p.grad.detach().norm()`."""
    value: cst.BaseExpression


def numbers_taken(taker: Taker, ctx: Context) -> list[Number]:
    """What raises in such a call, or in `f"{p.norm():.2f}"`: a DTensor has no data of its own, and no such format."""
    made = [(origin.file, origin.node) for origin in _taken(taker, ctx)]
    seen: set[tuple[cst.BaseExpression, bool]] = set()
    return [
        Number(where, tensor, value)
        for file, value in made
        if isinstance(value, cst.BaseExpression)
        for where, tensor in _tensors(value, file, seen)
    ]


def norms_of_pieces(function: cst.FunctionDef, ctx: Context) -> list[cst.BaseExpression]:
    """The sharded tensors of a function of which nothing but 2-norms come to such code, all of it in the function."""
    takers = [node for node in ctx.inside(function) if isinstance(node, Taker)]
    own = [taker for taker in takers if enclosing(ctx, taker, cst.FunctionDef) is function]
    return list(dict.fromkeys(tensor for taker in own for tensor in _pieces(taker, function, ctx)))


def takes_pieces(taker: Taker, ctx: Context) -> bool:
    """Whether it is given norms of `p.to_local()` from now on."""
    function = enclosing(ctx, taker, cst.FunctionDef)
    return function is not None and bool(_pieces(taker, function, ctx))


def _pieces(taker: Taker, function: cst.FunctionDef, ctx: Context) -> list[cst.BaseExpression]:
    numbers = numbers_taken(taker, ctx)
    is_known = all(
        number.file is ctx
        and enclosing(ctx, number.tensor, cst.FunctionDef) is function
        and is_surely_sharded(_parameter(number.tensor), ctx)
        and is_squared(number.tensor, ctx)
        for number in numbers
    )
    return [number.tensor for number in numbers] if is_known else []


def _parameter(tensor: cst.BaseExpression) -> cst.BaseExpression:
    return tensor.value if isinstance(tensor, cst.Attribute) and tensor.attr.value == "grad" else tensor


def _taken(taker: Taker, ctx: Context) -> Sequence[Origin]:
    """Where that is made which has to be plain."""
    if isinstance(taker, cst.FormattedStringExpression):
        return ctx.origins(taker.expression) if taker.format_spec else ()
    name, method = ctx.dotted(taker.func) or "", isinstance(taker.func, cst.Attribute) and taker.func.attr.value
    given = taker.args[0].value if taker.args and not taker.args[0].star else None
    if isinstance(taker.func, cst.Attribute) and method == "tolist":
        return ctx.origins(taker.func.value)
    if isinstance(taker.func, cst.Attribute) and method == "format":
        return [origin for value in _formatted(taker, taker.func.value) for origin in ctx.origins(value)]
    if given is not None and name.startswith("numpy."):
        return [*ctx.origins(given), *ctx.elements(given)]
    return ctx.elements(given) if given is not None and (name in _MAKERS or method == "new_tensor") else ()


def _formatted(call: cst.Call, template: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The arguments of `"{:.2f}".format(norm)` that are given a format."""
    if not isinstance(template, cst.SimpleString) or not isinstance(template.evaluated_value, str):
        return
    named = {argument.keyword.value: argument.value for argument in call.args if argument.keyword is not None}
    fields = [(name, spec) for _, name, spec, _ in Formatter().parse(template.evaluated_value) if name is not None]
    for place, (name, spec) in enumerate(fields):
        place = int(name) if name.isdecimal() else place
        if spec and name in named:
            yield named[name]
        elif spec and (not name or name.isdecimal()) and place < len(call.args):
            yield call.args[place].value


def _tensors(
    value: cst.BaseExpression, ctx: Context, seen: set[tuple[cst.BaseExpression, bool]], is_number: bool = False
) -> Iterator[tuple[Context, cst.BaseExpression]]:
    """The sharded tensors that a value is a number of; `seen` is what was followed, as a number or not."""
    if (value, is_number) in seen:
        return
    seen.add((value, is_number))
    if isinstance(value, cst.Call):
        operand, reduces = operand_of(value, ctx)
        if operand is not None:
            yield from _tensors(operand, ctx, seen, is_number or reduces)
    elif isinstance(value, cst.BinaryOperation):
        for side in (value.left, value.right):
            yield from _tensors(side, ctx, seen, is_number)
    elif isinstance(value, cst.Attribute) and value.attr.value == "data":
        yield from _tensors(value.value, ctx, seen, is_number)
    elif is_number and is_sharded(value, ctx):
        yield ctx, value
    elif isinstance(value, cst.Name):
        for origin in ctx.origins(value):
            if isinstance(origin.node, cst.BaseExpression):
                yield from _tensors(origin.node, origin.file, seen, is_number)
