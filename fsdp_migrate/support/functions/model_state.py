"""A model's state dict, full as FSDP1 wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from .summon import full_tensor


def full_state_dict(model: nn.Module, offload_to_cpu: bool = False, rank0_only: bool = False) -> dict[str, Any]:
    """FSDP1's FULL_STATE_DICT: the keys and values of the unsharded model. Every rank has to call this.

    With `rank0_only`, all but the first of the ranks that the model is sharded over get an empty dict.
    """
    state = model.state_dict()
    sharded = next((value for value in state.values() if isinstance(value, DTensor)), None)
    if sharded is None:
        return state  # DDP, or not distributed at all
    is_kept = not rank0_only or sharded.device_mesh.get_local_rank(sharded.device_mesh.ndim - 1) == 0
    device, full = "cpu" if offload_to_cpu else None, {}
    for name, value in state.items():
        whole = full_tensor(value)
        if is_kept:  # a copy, since gathering over one rank gives the parameter itself, and so do buffers
            full[name] = whole.to(device, copy=True) if isinstance(whole, torch.Tensor) else whole
    return full


def whole_state_dict(model: nn.Module) -> dict[str, Any]:
    """A model's state dict, gathered on every rank; that of a DDP model as it is, with its prefix in the keys."""
    return {name: full_tensor(value) for name, value in model.state_dict().items()}


def load_full_state_dict(model: nn.Module, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
    """Load the state dict of the unsharded model into one that may be sharded. Every rank has to call this.

    Torch's `set_model_state_dict` broadcasts from the first rank of all, whatever the model is sharded over, says that
    all keys matched when one is missing, and finds no `_orig_mod.` in names.
    """
    sharded = dict(state_dict)
    for name, own in model.state_dict().items():
        if isinstance(own, DTensor) and name in state_dict:
            sharded[name] = distribute_tensor(state_dict[name].detach(), own.device_mesh, own.placements)
    return model.load_state_dict(sharded, strict=strict)
