"""A model's state dict, full as FSDP1 wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from .summon import full_tensor


def gather(value: Any, offload_to_cpu: bool, rank0_only: bool) -> Any:
    """A nested state dict with every DTensor gathered, one after the other; nothing is kept where it is not wanted."""
    if isinstance(value, Mapping):
        return {key: gather(item, offload_to_cpu, rank0_only) for key, item in value.items()}
    if not isinstance(value, torch.Tensor):
        return value
    full = full_tensor(value)
    if rank0_only and dist.get_rank() != 0:
        return None
    # A copy, since gathering over one rank gives the parameter itself, and so do buffers.
    return full.to("cpu" if offload_to_cpu else full.device, copy=True)


def full_state_dict(model: nn.Module, offload_to_cpu: bool = False, rank0_only: bool = False) -> dict[str, Any]:
    """FSDP1's FULL_STATE_DICT: the keys and values of the unsharded model. Every rank has to call this.

    With `rank0_only`, the other ranks get an empty dict.
    """
    full: dict[str, Any] = gather(model.state_dict(), offload_to_cpu, rank0_only)
    return {} if rank0_only and dist.get_rank() != 0 else full


def outline(value: Any) -> Any:
    """A state dict for ranks that have none: shapes of plain tensors, None for what each rank has its own part of."""
    if isinstance(value, Mapping):
        return {key: outline(item) for key, item in value.items()}
    if isinstance(value, DTensor):
        return None
    return value.to("meta") if isinstance(value, torch.Tensor) and value.dim() else value


def shard_like(param: torch.Tensor, value: Any, outlined: Any) -> Any:
    """This rank's part of a parameter, or of one item of its state. The first rank has the whole of it."""
    if outlined is None or not isinstance(outlined, torch.Tensor):
        return value if outlined is None else outlined
    if not outlined.dim():
        # FSDP1 without use_orig_params saved one `step` for a unit, and each of its parameters would advance it.
        return outlined.clone()
    device = param.device_mesh.device_type if isinstance(param, DTensor) else param.device
    full = torch.empty_like(outlined, device=device) if value is None else value.to(device)
    if isinstance(param, DTensor) and full.shape == param.shape:
        return distribute_tensor(full, param.device_mesh, param.placements).to(param.device)
    dist.broadcast(full, src=0)
    return full


def load_full_state_dict(model: nn.Module, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
    """Load the state dict of the unsharded model. Only the first rank needs to have it.

    Torch's `set_model_state_dict` says that all keys matched when one is missing, and finds no `_orig_mod.` in names.
    """
    own, saved = model.state_dict(), [outline(state_dict)]
    dist.broadcast_object_list(saved, src=0)
    sharded = {
        key: shard_like(own[key], state_dict.get(key), item) if key in own else item for key, item in saved[0].items()
    }
    return model.load_state_dict(sharded, strict=strict)
