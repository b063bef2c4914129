"""Parts of models that are wrapped around them: `model.encoder`, `model.blocks[0]`."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.plain_objects import may_be_plain
from codemods.reading.words import last_name, words

NO_MODELS = frozenset({"optim", "optimizer", "optimizers", "opt", "sched", "scheduler", "schedulers"})
NO_MODELS |= {"scaler", "loader", "loaders", "dataloader", "sampler"}
"""What is named like this is no model, whatever it is."""

_WRAPPED = frozenset({"module", "_fsdp_wrapped_module", "_orig_mod"})
"""What wrappers call the module inside of them."""

UNITS_ONLY = "FSDP1 gathered what of a part lies in units, and what the root shards itself it left out, or flat"
"""What differs in the state dict of a part. Measured: {} or flat pieces of the root's own, with and without the context
(torch 2.13, 2 ranks, without and with use_orig_params)."""


def unwrapped(model: cst.BaseExpression) -> cst.BaseExpression:
    """`model` of `model.module`."""
    while isinstance(model, cst.Attribute) and model.attr.value in _WRAPPED:
        model = model.value
    return model


def model_around(part: cst.BaseExpression, ctx: Context) -> cst.BaseExpression | None:
    """The FSDP model whose part an expression is. None for a model itself, and for what is no module of it."""
    part = unwrapped(part)
    if words(last_name(part)) & NO_MODELS or ModelKind.FSDP in ctx.kinds(part) or may_be_plain(ctx, part):
        return None
    around = part
    while isinstance(around, (cst.Attribute, cst.Subscript)):
        around = around.value
        held = ctx.kinds(around)
        if ModelKind.FSDP in held:
            # Of an object that nobody knows, any attribute of the name can be meant: `model.model.blocks` in a test.
            return around if ModelKind.UNKNOWN not in held else None
        if isinstance(around, cst.Attribute) and around.attr.value in _WRAPPED:
            return None  # the module of another wrapper: `model.module.encoder` behind `hasattr(model, "module")`
    return None
