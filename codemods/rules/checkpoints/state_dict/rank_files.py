"""Files of `torch.save` that hold a sharded state dict, one a rank: those of FSDP1 are not for FSDP2.

FSDP1 saved ShardedTensors, but DTensors where it was given a device mesh. `set_model_state_dict` raises for the first
(torch 2.13, 2 ranks), and loads the others.
"""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from codemods.api import Context
from codemods.reading.state_dicts.saves import is_saved

MESSAGE = "a file that FSDP1 saved like this holds ShardedTensors, and is an error when it is loaded"
_DEPTH = 3
"""How many names a state dict is followed over."""
HINT = "go on from a full checkpoint of FSDP1, or from one of torch.distributed.checkpoint"


def deals_in_rank_files(calls: Iterable[cst.Call], ctx: Context) -> bool:
    """Whether `model.state_dict()` comes to a `torch.save`, or `model.load_state_dict(state)` from a `torch.load`."""
    return any(is_saved(call, ctx) if _method(call) == "state_dict" else _is_loaded(call, ctx) for call in calls) and (
        not any(True for _ in ctx.passing("device_mesh")) and not any(True for _ in ctx.passing("_use_dtensor"))
    )


def _method(call: cst.Call) -> str:
    return call.func.attr.value if isinstance(call.func, cst.Attribute) else ""


def _is_loaded(call: cst.Call, ctx: Context) -> bool:
    return _method(call) == "load_state_dict" and bool(call.args) and _is_of_file(call.args[0].value, ctx, _DEPTH)


def _is_of_file(state: cst.CSTNode | None, ctx: Context, depth: int) -> bool:
    """`torch.load(path)`, and `payload["model"]` of it."""
    while isinstance(state, cst.Subscript):
        state = state.value
    if isinstance(state, cst.Call) and ctx.dotted(state.func) == "torch.load":
        return True
    if not depth or not isinstance(state, (cst.Name, cst.Attribute, cst.Call)):
        return False
    made = [(origin.file, origin.node) for origin in ctx.origins(state)]
    made += ctx.bound(state) or () if isinstance(state, cst.Name) else ()
    return any(_is_of_file(node, where, depth - 1) for where, node in made if node is not state)
