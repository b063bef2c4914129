"""Which expressions are DTensors: a wrapped model's parameters and gradients, and what is made like one."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.parameters.of_model import is_shard
from codemods.reading.parameters.stepped import is_stepped

VIEWS = frozenset({"T", "data", "grad"})
_MATH = frozenset({"abs", "neg", "pow", "sign", "sqrt", "square"})
_KEEPING = _MATH | {"clone", "contiguous", "cpu", "cuda", "detach", "double", "float", "half", "to", "view_as"}
"""Methods that give a DTensor for a DTensor, sharded alike."""
_LIKE = frozenset(f"torch.{kind}_like" for kind in ("empty", "full", "ones", "rand", "randn", "zeros"))
_FARTHEST = 4
"""Steps back from what is asked for."""


def is_sharded(value: cst.BaseExpression, ctx: Context, depth: int = _FARTHEST) -> bool:
    """Whether a value is a sharded parameter or gradient, or is made like one."""
    if depth == 0:
        return False
    if is_shard(value, ctx) or is_stepped(value, ctx):
        return True
    inner: list[cst.BaseExpression] = []
    if isinstance(value, cst.Attribute) and value.attr.value in VIEWS:
        inner = [value.value]
    elif isinstance(value, cst.Subscript):
        inner = [value.value]
    elif isinstance(value, cst.BinaryOperation):
        inner = [value.left, value.right]
    elif isinstance(value, cst.Call) and ctx.dotted(value.func) in _LIKE:
        inner = [value.args[0].value] if value.args else []
    elif isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value in _KEEPING:
        inner = [value.func.value]
    elif isinstance(value, cst.Name):
        made = ctx.bound(value) or [(where, passed) for where, _, passed in ctx.passed_to(value, value.value)]
        return any(is_sharded(each, where, depth - 1) for where, each in made)
    return any(is_sharded(each, ctx, depth) for each in inner)
