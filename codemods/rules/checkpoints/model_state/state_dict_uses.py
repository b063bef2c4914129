"""What is asked of a state dict that comes to the same for whole tensors and for sharded ones.

A DTensor has the size and dtype of the whole.
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context

_SIZES = frozenset({"dim", "dtype", "element_size", "ndim", "numel", "requires_grad", "shape", "size"})


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
