"""Questions for the dimensions of a parameter. FSDP1's were flat; of none at all has neither FSDP parameters."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import ifs_around

_SCALAR = {(cst.Equal, 0), (cst.LessThan, 1), (cst.LessThanEqual, 0)}
_NO_SCALAR = {(cst.NotEqual, 0), (cst.GreaterThan, 0), (cst.GreaterThanEqual, 1)}


def asks_dimensions(node: cst.CSTNode, ctx: Context) -> bool:
    """`p.ndim`, `p.dim()`, `len(p.shape)`, `len(list(p.size()))`; not where what is asked is whether there is one."""
    return _is_dimension(node, ctx) and not _compared(node, ctx) & (_SCALAR | _NO_SCALAR)


def is_for_scalars(node: cst.CSTNode, ctx: Context) -> bool:
    """Whether a place is below `if p.ndim == 0:`, which is met for no parameter that either FSDP takes."""
    tests = [outer.test for outer in ifs_around(ctx, node) if isinstance(outer.test, cst.Comparison)]
    return any(_compared(part, ctx) & _SCALAR for test in tests for part in (test.left, _attribute(test.left)) if part)


def _attribute(asked: cst.BaseExpression) -> cst.BaseExpression | None:
    return asked.func if isinstance(asked, cst.Call) else None


def _is_dimension(node: cst.CSTNode, ctx: Context) -> bool:
    if isinstance(node, cst.Attribute):
        around = ctx.parent(node)
        is_called = isinstance(around, cst.Call) and around.func is node
        return node.attr.value == "ndim" or (node.attr.value == "dim" and is_called)
    if not isinstance(node, cst.Call) or ctx.code(node.func) != "len" or len(node.args) != 1:
        return False
    shape = node.args[0].value
    if isinstance(shape, cst.Call) and ctx.code(shape.func) in {"list", "tuple"} and len(shape.args) == 1:
        shape = shape.args[0].value
    shape = shape.func if isinstance(shape, cst.Call) and not shape.args else shape
    return isinstance(shape, cst.Attribute) and shape.attr.value in {"shape", "size"}


def _compared(node: cst.CSTNode, ctx: Context) -> set[tuple[type[cst.BaseCompOp], int]]:
    """What dimensions are compared with, by which operator: nothing of any other node."""
    if not _is_dimension(node, ctx):
        return set()
    around = ctx.parent(node)
    if isinstance(around, cst.Call) and around.func is node:
        node, around = around, ctx.parent(around)
    if not isinstance(around, cst.Comparison) or around.left is not node or len(around.comparisons) != 1:
        return set()
    target = around.comparisons[0]
    if not isinstance(target.comparator, cst.Integer):
        return set()
    return {(type(target.operator), target.comparator.evaluated_value)}
