"""What an optimizer keeps for parameters of a wrapped model, where the program reads it: `opt.state[p]["exp_avg"]`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.places import bound
from codemods.reading.code.shapes import called_on, key_of
from codemods.reading.parameters.lists import heads
from codemods.reading.parameters.of_model import is_of_wrapped

KEPT = frozenset({"exp_avg", "exp_avg_sq", "exp_inf", "max_exp_avg_sq", "momentum_buffer", "square_avg", "sum"})
_STATE = "state"


def state_values(ctx: Context) -> Iterator[cst.Subscript]:
    """Each place where a file reads one, of an optimizer that is seen to be made of such parameters."""
    for read in ctx.nodes(cst.Subscript):
        if key_of(read) in KEPT and any(_is_state(each, ctx) for each in _made_of(read.value, ctx)):
            yield read


def _made_of(value: cst.BaseExpression, ctx: Context) -> Iterator[cst.BaseExpression]:
    """`optimizer.state` of `optimizer.state[p]` and `.get(p)`, by a variable too, or by a loop over its values."""
    yield value
    made = [each for where, each in ctx.bound(value) or () if where is ctx] if isinstance(value, cst.Name) else []
    for each in (value, *made):
        looked_in = each.value if isinstance(each, cst.Subscript) else called_on(each, "get")
        if looked_in is not None:
            yield looked_in
    if not isinstance(value, cst.Name):
        return
    for loop in ctx.ancestors(value):
        for head in heads(loop) if isinstance(loop, (cst.For, cst.BaseComp)) else ():
            over = head.iter.func if isinstance(head.iter, cst.Call) else None
            if value.value in bound(head.target) and isinstance(over, cst.Attribute):
                yield over.value


def _is_state(value: cst.BaseExpression, ctx: Context) -> bool:
    return isinstance(value, cst.Attribute) and value.attr.value == _STATE and is_of_wrapped(value.value, ctx)
