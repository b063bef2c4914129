"""A model's state dict, full as FSDP1 wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from .summon import full_tensor, is_first_rank, write_shard


def gather(value: Any, offload_to_cpu: bool, keep: bool = True) -> Any:
    """A nested state dict with every DTensor gathered, one after the other; nothing is kept where it is not wanted."""
    if isinstance(value, Mapping):
        return {key: gather(item, offload_to_cpu, keep) for key, item in value.items()}
    if not isinstance(value, torch.Tensor):
        return value
    full = full_tensor(value)
    if not keep:
        return None
    # A copy, since gathering over one rank gives the parameter itself, and so do buffers.
    return full.to("cpu" if offload_to_cpu else full.device, copy=True)


def full_state_dict(model: nn.Module, offload_to_cpu: bool = False, rank0_only: bool = False) -> dict[str, Any]:
    """FSDP1's FULL_STATE_DICT: the keys and values of the unsharded model. Every rank has to call this.

    With `rank0_only`, all but the first of the ranks that the model is sharded over get an empty dict.
    """
    state = model.state_dict()
    if not any(isinstance(value, DTensor) for value in state.values()):
        return state  # DDP, or not distributed at all
    keep = not rank0_only or is_first_rank(model)
    full: dict[str, Any] = gather(state, offload_to_cpu, keep)
    return full if keep else {}


def whole_state_dict(model: nn.Module) -> dict[str, Any]:
    """A model's state dict, gathered on every rank; that of a DDP model as it is, with its prefix in the keys."""
    return {name: full_tensor(value) for name, value in model.state_dict().items()}


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


def part_of(param: torch.Tensor, full: Any) -> Any:
    """This rank's part of a full tensor; what is no such tensor, as it is."""
    if not isinstance(param, DTensor) or not isinstance(full, torch.Tensor) or full.shape != param.shape:
        return full
    part = torch.empty_like(param)
    write_shard(part, full)
    return part


def load_full_state_dict(model: nn.Module, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
    """Load the state dict of the unsharded model, of which every rank takes its part, as in FSDP1.

    Torch's `set_model_state_dict` broadcasts from the first rank of all, whatever the model is sharded over, says that
    all keys matched when one is missing, and finds no `_orig_mod.` in names.
    """
    own = model.state_dict()
    sharded = {key: part_of(own[key], value) if key in own else value for key, value in state_dict.items()}
    return model.load_state_dict(sharded, strict=strict)
