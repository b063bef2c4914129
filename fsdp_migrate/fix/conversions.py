"""Whether a call only says what a member of an enum stands for: `prefetch.to_torch()`."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import enclosing

_DOES_MORE = (
    *(cst.With, cst.For, cst.While, cst.Try, cst.Global, cst.Nonlocal, cst.Del, cst.AugAssign),
    *(cst.Await, cst.Yield, cst.NamedExpr, cst.Import, cst.ImportFrom, cst.FunctionDef, cst.ClassDef),
)


def is_conversion(call: cst.Call, ctx: Context) -> bool:
    """Whether every method of its name in the program looks a member up, and refuses none but one that is not there."""
    if call.args or not isinstance(call.func, cst.Attribute):
        return False
    name = call.func.attr.value
    named = [(where, node) for where in ctx.files(name) for node in where.nodes(cst.FunctionDef)]
    found = [_looks_itself_up(where, node) for where, node in named if node.name.value == name]
    return bool(found) and all(found)


def _looks_itself_up(ctx: Context, function: cst.FunctionDef) -> bool:
    owner = enclosing(ctx, function, cst.ClassDef)
    if owner is None or not any(_is_enum(ctx, base.value) for base in owner.bases) or function.decorators:
        return False
    raised = {node for each in ctx.inside(function.body) if isinstance(each, cst.Raise) for node in ctx.inside(each)}
    return not any(_does_more(node) for node in ctx.inside(function.body) if node not in raised)


def _is_enum(ctx: Context, base: cst.BaseExpression) -> bool:
    return (ctx.dotted(base) or "").startswith("enum.")


def _does_more(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.AssignTarget):
        return not isinstance(node.target, cst.Name)
    return isinstance(node, (cst.Call, *_DOES_MORE))
