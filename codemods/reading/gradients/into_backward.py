"""Values that go into a loss, with their gradients: by variables of their function, and by what that returns."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import enclosing, is_label
from codemods.reading.code.places import bound_texts
from codemods.reading.code.words import last_name
from codemods.reading.forwards.calls import is_without_grad
from codemods.tables.tensors import ASKS, FACTS

_BACKWARD = frozenset({"backward", "manual_backward"})
_ENDS = ASKS | {"detach", "item", "numpy", "print", "tolist"}
_NUMBERS = frozenset({"bool", "float", "int", "str"})
_ADDS = frozenset({"add_", "append", "extend", "insert"})
_PLAIN = FACTS | {"data", "grad"}
_DEPTH = 3
"""Callers that are followed up from a function that returns such a value."""


def reaches_backward(values: Sequence[cst.BaseExpression], ctx: Context, depth: int = _DEPTH) -> bool:
    """Whether `backward` is called of something that one of these values, all of one function, went into."""
    function = enclosing(ctx, values[0], cst.FunctionDef)
    carried: set[str] = set()
    before = -1
    while before < len(carried):
        before = len(carried)
        for node in ctx.inside(function or ctx.top):
            read, targets = _flow(node)
            if not any(_carries(each, part, values, carried, ctx) for part in read for each in ctx.inside(part)):
                continue
            if isinstance(node, cst.Call) and not targets:
                return True
            if isinstance(node, cst.Return) and depth and function is not None:
                if any(reaches_backward([call], where, depth - 1) for where, call in ctx.callers(node)):
                    return True
            carried.update(name for target in targets for name in bound_texts(target, ctx))
    return False


def _flow(node: cst.CSTNode) -> tuple[Sequence[cst.CSTNode], Sequence[cst.CSTNode]]:
    """What is read, and what is set from it: nothing, where `backward` is called, or a function left."""
    if isinstance(node, cst.Assign):
        return [node.value], [target.target for target in node.targets]
    if isinstance(node, (cst.AugAssign, cst.NamedExpr)):
        return [node.value], [node.target]
    if isinstance(node, cst.For):
        return [node.iter], [node.target]
    if isinstance(node, cst.Return) and node.value is not None:
        return [node.value], []
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        if node.func.attr.value in _BACKWARD:
            return [node], []
        if node.func.attr.value in _ADDS:
            return [argument.value for argument in node.args], [node.func.value]
    return [], []


def _carries(
    node: cst.CSTNode, read: cst.CSTNode, values: Sequence[cst.CSTNode], carried: set[str], ctx: Context
) -> bool:
    """Whether a part of what is read is one of the values, or holds one, with its gradient."""
    is_value = any(node is value for value in values)
    if not is_value and not (isinstance(node, (cst.Name, cst.Attribute)) and ctx.code(node) in carried):
        return False
    if is_label(node, ctx) or is_without_grad(ctx.ancestors(node), ctx):
        return False
    while node is not read:
        outer = ctx.parent(node)
        if outer is None or isinstance(outer, cst.Comparison) or _is_plain(outer, node):
            return False
        node = outer
    return True


def _is_plain(outer: cst.CSTNode, node: cst.CSTNode) -> bool:
    """Whether what is around a tensor has no gradient."""
    if isinstance(outer, cst.Attribute):
        return outer.value is node and outer.attr.value in _PLAIN
    if not isinstance(outer, cst.Call):
        return False
    return last_name(outer.func) in _ENDS or (isinstance(outer.func, cst.Name) and outer.func.value in _NUMBERS)
