"""Which `torch.save` a state dict goes into."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context


def save_of(value: cst.BaseExpression, ctx: Context) -> cst.Call | None:
    """The `torch.save` that is all that is done with a value."""
    holder: cst.CSTNode | None = value
    while isinstance(ctx.parent(holder), (cst.DictElement, cst.Dict)) if holder is not None else False:
        holder = ctx.parent(holder) if holder is not None else None
    parent = ctx.parent(holder) if holder is not None else None
    if isinstance(parent, cst.Arg):
        call = ctx.parent(parent)
        is_save = isinstance(call, cst.Call) and ctx.dotted(call.func) == "torch.save" and call.args[0] is parent
        return call if is_save and isinstance(call, cst.Call) else None
    if not isinstance(parent, cst.Assign) or len(parent.targets) != 1:
        return None
    if not isinstance(parent.targets[0].target, cst.Name):
        return None
    saves = {save_of(use, ctx) for use in ctx.uses(parent)}
    return saves.pop() if len(saves) == 1 else None


def may_alias(read: cst.Call, ctx: Context) -> bool:
    """Whether a full state dict can be kept whose tensors are the model's own, and go on changing with it.

    They are where each rank has the whole of them, as with NO_SHARD: there is nothing to gather. FSDP1 gave copies.
    """
    return ctx.mentions("NO_SHARD") and save_of(read, ctx) is None
