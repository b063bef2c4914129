"""Whether parameters from before the wrap are only counted: `filter(...)` for a line in the log trains nothing."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.enclosing import enclosing
from codemods.reading.model_parameters import Loop

_ASKED = frozenset({"dtype", "element_size", "nelement", "numel", "requires_grad", "shape", "size"})


def is_only_counted(made: cst.BaseExpression, ctx: Context) -> bool:
    """Whether all that is done with a collection is to ask how many it holds, and how large they are."""
    statement = enclosing(ctx, made, cst.Assign)
    uses = ctx.uses(statement) if statement is not None else ()
    return bool(uses) and all(_is_counted(use, ctx) for use in uses)


def _is_counted(use: cst.Name, ctx: Context) -> bool:
    holder = ctx.parent(use)
    if isinstance(holder, cst.Arg):
        call = ctx.parent(holder)
        return isinstance(call, cst.Call) and ctx.code(call.func) == "len"
    if isinstance(holder, (cst.For, cst.CompFor)):
        loop = _loop(holder, ctx)
        return loop is not None and _only_asks(loop, holder.target, ctx)
    return False


def _loop(holder: cst.For | cst.CompFor, ctx: Context) -> Loop | None:
    if isinstance(holder, cst.For):
        return holder
    around = ctx.parent(holder)
    return around if isinstance(around, Loop) else None


def _only_asks(loop: Loop, target: cst.BaseExpression, ctx: Context) -> bool:
    names = [node for node in ctx.inside(loop) if isinstance(node, cst.Name) and node.value == ctx.code(target)]
    return all(_is_asked(node, ctx) for node in names if node is not target)


def _is_asked(name: cst.Name, ctx: Context) -> bool:
    outer = ctx.parent(name)
    return isinstance(outer, cst.Attribute) and outer.value is name and outer.attr.value in _ASKED
