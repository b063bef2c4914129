"""Where the condition holds under which a model is wrapped: `model.module if ddp else model`, below
`if ddp: model = FSDP(model)`. Whatever the flag is called, no other wrapper comes there.
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import ifs_around
from codemods.reading.code.places import bound


def is_on_wrapped_way(model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a test around a variable is the one, and the only one, under which it was bound to its one wrap."""
    if not isinstance(model, cst.Name):
        return False
    made = {origin.node for origin in ctx.origins(model)}
    wraps = [call for where, call in ctx.wrapping.calls(ctx.path) if where.path == ctx.path and call in made]
    if len(wraps) != 1 or ctx.scope(wraps[0]) is not ctx.scope(model):
        return False
    choices = list(ifs_around(ctx, wraps[0]))
    if len(choices) != 1 or ctx.span(choices[0])[1] > ctx.span(model)[0]:
        return False
    test = choices[0].test
    is_asked = any(ctx.code(each.test) == ctx.code(test) for each in ifs_around(ctx, model))
    return is_asked and ctx.same_meaning(test, model) and _is_last(wraps[0], model, ctx)


def _is_last(wrap: cst.Call, model: cst.Name, ctx: Context) -> bool:
    """Whether the variable is bound to the wrap, and to nothing further down: no compiled, and no DDP model."""
    bindings = [n for n in ctx.inside(ctx.scope(wrap)) if isinstance(n, (cst.Assign, cst.For, cst.WithItem, cst.Del))]
    last = [node for node in bindings if ctx.span(node)[1] >= ctx.span(wrap)[1] and model.value in _bound_by(node)]
    return last == [ctx.parent(wrap)]


def _bound_by(node: cst.CSTNode) -> set[str]:
    if isinstance(node, cst.Assign):
        return {name for each in node.targets for name in bound(each.target)}
    if isinstance(node, cst.WithItem):
        return set(bound(node.asname.name)) if node.asname is not None else set()
    return set(bound(node.target if isinstance(node, cst.For) else cst.ensure_type(node, cst.Del).target))
