"""What is done with a state dict that comes to the same for whole tensors and for sharded ones.

A DTensor has the size and dtype of the whole, and `torch.distributed.checkpoint` fills it in place.
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context

_SIZES = frozenset({"dim", "dtype", "element_size", "ndim", "numel", "requires_grad", "shape", "size"})
_FILLS = frozenset(
    f"torch.distributed.{package}.{name}"
    for package in ("checkpoint", "checkpoint.state_dict_loader", "_shard.checkpoint")
    for name in ("load", "load_state_dict")
)

_DCP = ("torch.distributed.checkpoint.", "torch.distributed._shard.checkpoint.")


def is_described(read: cst.Call, ctx: Context) -> bool:
    """Whether a state dict is only asked for its names, and its tensors for their sizes: by a loop, `keys()`, `len`."""
    holder = ctx.parent(read)
    if isinstance(holder, cst.Arg):
        call = ctx.parent(holder)
        return isinstance(call, cst.Call) and ctx.code(call.func) == "len"
    asked = ctx.parent(holder) if isinstance(holder, cst.Attribute) and holder.value is read else None
    if not isinstance(asked, cst.Call) or asked.func is not holder or not isinstance(holder, cst.Attribute):
        return False
    if holder.attr.value == "keys":
        return True
    loop = ctx.parent(asked)
    if not isinstance(loop, (cst.For, cst.CompFor)) or loop.iter is not asked:
        return False
    target: cst.BaseExpression = loop.target
    if holder.attr.value == "items":
        target = target.elements[1].value if isinstance(target, cst.Tuple) and len(target.elements) == 2 else target
    elif holder.attr.value != "values":
        return False
    return isinstance(target, cst.Name) and all(_is_size(use, ctx) for use in _uses(target, ctx))


def _uses(variable: cst.Name, ctx: Context) -> list[cst.Name]:
    """Every other name of that spelling in its function: one that is bound again says no."""
    named = (node for node in ctx.inside(ctx.scope(variable)) if isinstance(node, cst.Name))
    return [node for node in named if node.value == variable.value and node is not variable]


def _is_size(use: cst.Name, ctx: Context) -> bool:
    holder = ctx.parent(use)
    if isinstance(holder, cst.Attribute):
        return holder.attr is use or holder.attr.value in _SIZES
    return isinstance(holder, cst.Arg) and holder.keyword is use


def is_filled_in_place(read: cst.Call, ctx: Context) -> bool:
    """Whether a state dict goes to a load of `torch.distributed.checkpoint`, and from there into the same model."""
    model = ctx.code(cst.ensure_type(read.func, cst.Attribute).value)
    holder: cst.CSTNode | None = ctx.parent(read)
    while isinstance(holder, (cst.Dict, cst.DictElement)):
        holder = ctx.parent(holder)
    if not isinstance(holder, cst.Assign) or len(holder.targets) != 1:
        return False
    if not isinstance(holder.targets[0].target, cst.Name):
        return False
    calls = [_given_to(use, ctx) for use in ctx.uses(holder)]
    loads = [call for call in calls if call is not None and ctx.dotted(call.func) in _FILLS]
    back = [call for call in calls if call is not None and ctx.code(call.func) == f"{model}.load_state_dict"]
    return bool(loads) and len(loads) + len(back) == len(calls)


def is_for_dcp(state: cst.CSTNode, ctx: Context, model: str) -> bool:
    """Whether a state dict goes to `torch.distributed.checkpoint` alone, or back into its model: wherever it lies."""
    value, holder = state, ctx.parent(state)
    while isinstance(holder, (cst.Dict, cst.DictElement, cst.Subscript)):
        value, holder = holder, ctx.parent(holder)
    outer = ctx.parent(holder) if holder is not None else None
    if isinstance(holder, cst.Attribute) and holder.attr.value in ("get", "pop") and isinstance(outer, cst.Call):
        return is_for_dcp(outer, ctx, model)
    if isinstance(holder, cst.Arg) and isinstance(outer, cst.Call):
        return ctx.code(outer.func) == f"{model}.load_state_dict" or (ctx.dotted(outer.func) or "").startswith(_DCP)
    if not isinstance(holder, cst.Assign) or holder.value is not value or len(holder.targets) != 1:
        return False
    if not isinstance(holder.targets[0].target, cst.Name):
        return False
    return all(is_for_dcp(use, ctx, model) for use in ctx.uses(holder))


def _given_to(use: cst.CSTNode, ctx: Context) -> cst.Call | None:
    """The call whose argument is a name, or an item of it."""
    holder = ctx.parent(use)
    while isinstance(holder, cst.Subscript) and holder.value is use:
        use, holder = holder, ctx.parent(holder)
    call = ctx.parent(holder) if isinstance(holder, cst.Arg) else None
    return call if isinstance(call, cst.Call) else None
