"""A state dict that `torch.distributed.checkpoint` alone takes.

The file holds whole tensors whatever kind of state dict was set, and what FSDP2 gives by itself makes the same one.
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, NotStatic
from codemods.reading.code.enclosing import contains, enclosing
from codemods.reading.code.words import last_name
from codemods.reading.processes.one_rank import is_on_one_rank
from codemods.reading.state_dicts.by_class import receiver
from codemods.tables.state_dicts import DCP_READERS

_DCP = ("torch.distributed.checkpoint.", "torch.distributed._shard.checkpoint.")
_SAVES = frozenset({"async_save", "save", "save_state_dict"})
_LOADS = frozenset({"load", "load_state_dict"})
_OTHERWISE = frozenset({"async_stager", "no_dist", "process_group"})
"""Arguments with which not all ranks take part, or the model trains on before it is copied."""
_ITEMS = frozenset({"get", "pop"})
_DEPTH = 6
"""How many names a state dict is followed through."""


def is_for_dcp_alone(read: cst.Call, ctx: Context, is_wrapped: bool = True) -> bool:
    """Whether all ranks save a state dict, or load into it and then into the same model, and nothing else sees it.

    FSDP2's own is filled in place, and what is loaded into it is in the model at once. So it is in a model that is not
    wrapped, which need not load it then.
    """
    try:
        ends = _ends(read, ctx, _DEPTH)
    except NotStatic:
        return False
    back = [end for end in ends if _is_back(end, read, ctx)]
    others = [end for end in ends if end not in back]
    return bool(others) and all(_is_dcps(end, back, is_wrapped, ctx) for end in others)


def comes_from_dcp(load: cst.Call, ctx: Context) -> bool:
    """Whether such a state dict is what `model.load_state_dict(…)` takes."""
    reads = (call for call in ctx.calls(ctx.scope(load)) if last_name(call.func) == "state_dict")
    return any(load in _ends_of(read, ctx) and is_for_dcp_alone(read, ctx) for read in reads)


def _ends_of(read: cst.Call, ctx: Context) -> list[cst.Call]:
    try:
        return _ends(read, ctx, _DEPTH)
    except NotStatic:
        return []


def _ends(value: cst.CSTNode, ctx: Context, depth: int) -> list[cst.Call]:
    """The calls that take a value, by itself or in a dict. Raises NotStatic where it goes elsewhere."""
    holder = ctx.parent(value)
    while isinstance(holder, (cst.Dict, cst.DictElement)) or (
        isinstance(holder, cst.Subscript) and holder.value is value
    ):
        value, holder = holder, ctx.parent(holder)
    outer = ctx.parent(holder) if holder is not None else None
    if isinstance(holder, cst.Del):
        return []
    if isinstance(holder, cst.Attribute) and holder.attr.value in _ITEMS and isinstance(outer, cst.Call):
        return _ends(outer, ctx, depth)
    if isinstance(holder, cst.Arg) and isinstance(outer, cst.Call):
        return [outer]
    target = holder.targets[0].target if isinstance(holder, cst.Assign) and len(holder.targets) == 1 else None
    uses = ctx.uses(holder) if isinstance(target, cst.Name) and isinstance(holder, cst.Assign) else ()
    if not uses or depth == 0 or not all(_is_bound_once(use, ctx) for use in uses):
        raise NotStatic("it is not followed")
    return [end for use in uses for end in _ends(use, ctx, depth - 1)]


def _is_bound_once(use: cst.Name, ctx: Context) -> bool:
    bound = ctx.bound(use)
    return bound is not None and len(bound) == 1


def _is_back(end: cst.Call, read: cst.Call, ctx: Context) -> bool:
    """`model.load_state_dict(state)`, into the model whose state dict it is."""
    model, into = receiver(read, ctx), receiver(end, ctx)
    if model is None or into is None or last_name(end.func) != "load_state_dict":
        return False
    return last_name(read.func) == "state_dict" and ctx.code(into) == ctx.code(model) and ctx.same_meaning(model, end)


def _is_dcps(end: cst.Call, back: list[cst.Call], is_wrapped: bool, ctx: Context) -> bool:
    """Whether it is a call of DCP that all ranks make; one that loads is always followed by one of `back`."""
    dotted = ctx.dotted(end.func) or ""
    if dotted in DCP_READERS:
        return True
    name = dotted.rpartition(".")[2]
    if not dotted.startswith(_DCP) or name not in _SAVES | _LOADS:
        return False
    if name in _LOADS:
        return not is_wrapped or any(_always_follows(each, end, ctx) for each in back)
    return not is_on_one_rank(end, ctx) and _is_by_all(end)


def _is_by_all(call: cst.Call) -> bool:
    named = {argument.keyword.value for argument in call.args if argument.keyword is not None}
    by_place = [argument for argument in call.args if argument.keyword is None]
    return not named & _OTHERWISE and len(by_place) <= 2 and not any(argument.star for argument in call.args)


def _always_follows(call: cst.Call, first: cst.Call, ctx: Context) -> bool:
    block = enclosing(ctx, call, cst.IndentedBlock, cst.Module)
    if block is None or not contains(ctx, block, first):
        return False
    start, end = ctx.span(first)[1], ctx.span(call)[0]
    leaves = [node for node in ctx.inside(block) if isinstance(node, (cst.Break, cst.Continue, cst.Return))]
    return start < end and not any(start < ctx.span(node)[0] < end for node in leaves)
