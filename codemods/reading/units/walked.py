"""Units that a loop in a `state_dict_type` context comes to: FSDP1 set the kind of state dict for each of them."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, ModelKind, NotStatic
from codemods.reading.code.places import bound
from codemods.reading.state_dicts.settings import context_of, settings

_WALKS = {"modules", "named_modules", "children", "named_children"}


def walked_from(unit: cst.BaseExpression, ctx: Context) -> cst.BaseExpression | None:
    """The model of the context around, where a unit is `m` of `for m in model.modules():` in it."""
    context = context_of(unit, ctx)
    if context is None or ModelKind.FSDP not in ctx.kinds(unit):
        return None
    try:
        model = settings(context, ctx).model
    except NotStatic:
        return None
    return model if _is_walked(unit, model, ctx) else None


def _is_walked(unit: cst.BaseExpression, model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether loops bind it to a part of the model, as far as is seen: to no part of another FSDP model."""
    walk = _walk(unit, ctx)
    if walk is None:
        return False
    whole = ctx.code(model)
    is_of_model = ctx.code(walk) == whole or ctx.code(walk).startswith(f"{whole}.")
    return is_of_model or ModelKind.FSDP not in ctx.kinds(walk) or _is_walked(walk, model, ctx)


def _walk(unit: cst.BaseExpression, ctx: Context) -> cst.BaseExpression | None:
    """What the loop that binds a name goes through: `model` of `model.modules()`, `model.blocks`."""
    for outer in ctx.ancestors(unit) if isinstance(unit, cst.Name) else ():
        loop = outer.for_in if isinstance(outer, cst.BaseComp) else outer
        if isinstance(loop, (cst.For, cst.CompFor)) and ctx.code(unit) in bound(loop.target):
            return _owner(loop.iter)
        if isinstance(outer, cst.With) and any(item.item is context_of(unit, ctx) for item in outer.items):
            return None
    return None


def _owner(iterable: cst.BaseExpression) -> cst.BaseExpression | None:
    if not isinstance(iterable, cst.Call):
        return iterable
    if isinstance(iterable.func, cst.Attribute) and iterable.func.attr.value in _WALKS:
        return iterable.func.value
    is_counted = isinstance(iterable.func, cst.Name) and iterable.func.value in {"enumerate", "list", "tuple"}
    return _owner(iterable.args[0].value) if is_counted and iterable.args else None
