"""A model's state dict, full as FSDP1 wrote it."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, distribute_tensor

from .summon import full_tensor, is_first_rank


def full_state_dict(model: nn.Module, offload_to_cpu: bool = False, rank0_only: bool = False) -> dict[str, Any]:
    """FSDP1's FULL_STATE_DICT. Collective. With `rank0_only`, {} elsewhere."""
    state, kept = model.state_dict(), {}
    shards: list[Any] = [value for value in state.values() if isinstance(value, DTensor)]
    if not shards:
        return state  # DDP, or not distributed at all
    is_kept = not rank0_only or shards[0].device_mesh.get_coordinate()[-1] == 0
    for name, value in state.items():
        full = value.full_tensor() if isinstance(value, DTensor) else value
        if is_kept:  # as a copy: over one rank that is the parameter itself
            kept[name] = full.to("cpu" if offload_to_cpu else full.device, copy=True) if torch.is_tensor(full) else full
    return kept


@contextmanager
def full_state_dicts(
    model: nn.Module, offload_to_cpu: bool = False, rank0_only: bool = False
) -> Generator[None, None, None]:
    """Let `model.state_dict()` give FSDP1's FULL_STATE_DICT. Collective.

    For a library that calls it.

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


@contextmanager
def full_state_loads(model: nn.Module) -> Generator[None, None, None]:
    """Let `model.load_state_dict()` take FSDP1's FULL_STATE_DICT, each rank's own. Collective.

    For a library that calls it.
    """
    sharded: dict[str, Any] = {name: own for name, own in model.state_dict().items() if isinstance(own, DTensor)}

    def scatter(_module: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
        for name, own in sharded.items():
            full = state.get(prefix + name)
            if full is not None and not isinstance(full, DTensor):
                state[prefix + name] = distribute_tensor(full.detach(), own.device_mesh, own.placements)

    register: Any = model.register_load_state_dict_pre_hook
    hook = register(scatter)
    try:
        yield
    finally:
        hook.remove()


def whole_state_dict(model: nn.Module) -> dict[str, Any]:
    """A state dict, gathered on every rank; DDP's as it is, with prefix."""
    state = model.state_dict()
    return {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in state.items()}


def load_full_state_dict(model: nn.Module, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
    """Load each rank's full state dict into a sharded model. Collective."""
    sharded = dict(state_dict)
    for name, own in model.state_dict().items():
        if isinstance(own, DTensor) and name in state_dict:
            sharded[name] = distribute_tensor(state_dict[name].detach(), own.device_mesh, own.placements)
    if strict:  # left out, as a class's own method need not take it
        return model.load_state_dict(sharded)
    return model.load_state_dict(sharded, strict=False)


def load_past_own_method(model: nn.Module, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
    """Load each rank's full state dict past the class's own method, as FSDP1 did. Collective."""
    load: Any = partial(nn.Module.load_state_dict, model) if isinstance(model, FSDPModule) else model.load_state_dict
    sharded = dict(state_dict)
    for name, own in nn.Module.state_dict(model).items():
        if isinstance(own, DTensor) and name in state_dict:
            sharded[name] = distribute_tensor(state_dict[name].detach(), own.device_mesh, own.placements)
    if strict:  # left out, as a class's own method need not take it
        return load(sharded)
    return load(sharded, strict=False)
