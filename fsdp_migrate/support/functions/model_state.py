"""A model's state dict, full as FSDP1 wrote it."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from .summon import full_tensor, is_first_rank


def full_state_dict(model: nn.Module, offload_to_cpu: bool = False, rank0_only: bool = False) -> dict[str, Any]:
    """FSDP1's FULL_STATE_DICT. Every rank has to call this. With `rank0_only`, the others than the first get {}."""
    state, full = model.state_dict(), {}
    mesh = next((value.device_mesh for value in state.values() if isinstance(value, DTensor)), None)
    if mesh is None:
        return state  # DDP, or not distributed at all
    for name, value in state.items():
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        if not rank0_only or mesh.get_local_rank(mesh.ndim - 1) == 0:
            # A copy, since gathering over one rank gives the parameter itself, and so do buffers.
            full[name] = whole.to("cpu" if offload_to_cpu else None, copy=True) if torch.is_tensor(whole) else whole
    return full


@contextmanager
def full_state_dicts(
    model: nn.Module, offload_to_cpu: bool = False, rank0_only: bool = False
) -> Generator[None, None, None]:
    """Have `model.state_dict()` give FSDP1's FULL_STATE_DICT, for a library that calls it. Every rank has to do so.

    With `rank0_only`, all but the first of the ranks that the model is sharded over get an empty dict.
    """
    is_kept = not rank0_only or is_first_rank(model)
    device = "cpu" if offload_to_cpu else None

    def gather(_module: nn.Module, state: dict[str, Any], prefix: str, _metadata: object) -> None:
        for name in [name for name in state if name.startswith(prefix)]:
            whole = full_tensor(state.pop(name))
            if is_kept:
                state[name] = whole.to(device, copy=True) if isinstance(whole, torch.Tensor) else whole

    register: Any = model.register_state_dict_post_hook
    hook = register(gather)
    try:
        yield
    finally:
        hook.remove()


def whole_state_dict(model: nn.Module) -> dict[str, Any]:
    """A model's state dict, gathered on every rank; that of a DDP model as it is, with its prefix in the keys."""
    state = model.state_dict()
    return {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in state.items()}


def load_full_state_dict(model: nn.Module, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
    """Load this rank's state dict of the unsharded model into one that may be sharded. Every rank has to call this."""
    sharded = dict(state_dict)
    for name, own in model.state_dict().items():
        if isinstance(own, DTensor) and name in state_dict:
            sharded[name] = distribute_tensor(state_dict[name].detach(), own.device_mesh, own.placements)
    if strict:  # left out, as a class's own method need not take it
        return model.load_state_dict(sharded)
    return model.load_state_dict(sharded, strict=False)
