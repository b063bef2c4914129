"""Checkpoints of the kind that run time chose with `FSDP.state_dict_type`."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp.api import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    OptimStateDictConfig,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)

from .model_state import full_state_dict, load_full_state_dict
from .optimizer_state import full_optim_state_dict, offload, read_optimizer_state

# What `set_state_dict_type` set, by model.
STATE_DICT_SETTINGS: WeakKeyDictionary[nn.Module, StateDictSettings] = WeakKeyDictionary()


def get_state_dict_type(module: nn.Module) -> StateDictSettings:
    """The kind of state dict that was set, or FULL_STATE_DICT."""
    default = StateDictSettings(StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig())
    return STATE_DICT_SETTINGS.get(module, default)


def set_state_dict_type(
    module: nn.Module,
    state_dict_type: StateDictType,
    state_dict_config: StateDictConfig | None = None,
    optim_state_dict_config: OptimStateDictConfig | None = None,
) -> StateDictSettings:
    """FSDP1's `FSDP.set_state_dict_type`, for `model_state_dict` and its like. Returns the settings so far.

    `LOCAL_STATE_DICT` is each rank's part, as FSDP2 has it; FSDP1's own files are read by `load_local_state_dict`.
    """
    before = get_state_dict_type(module)
    full = state_dict_type is StateDictType.FULL_STATE_DICT
    STATE_DICT_SETTINGS[module] = StateDictSettings(
        state_dict_type,
        state_dict_config or (FullStateDictConfig() if full else ShardedStateDictConfig()),
        optim_state_dict_config or (FullOptimStateDictConfig() if full else ShardedOptimStateDictConfig()),
    )
    return before


@contextmanager
def state_dict_type(
    module: nn.Module,
    state_dict_type: StateDictType,
    state_dict_config: StateDictConfig | None = None,
    optim_state_dict_config: OptimStateDictConfig | None = None,
) -> Generator[None, None, None]:
    """FSDP1's `FSDP.state_dict_type`, for `model_state_dict` and its like."""
    before = set_state_dict_type(module, state_dict_type, state_dict_config, optim_state_dict_config)
    try:
        yield
    finally:
        STATE_DICT_SETTINGS[module] = before


def model_state_dict(model: nn.Module) -> dict[str, Any]:
    """`model.state_dict()` in the kind that was set for it. Collective."""
    config = get_state_dict_type(model).state_dict_config
    if get_state_dict_type(model).state_dict_type is StateDictType.FULL_STATE_DICT:
        return full_state_dict(model, config.offload_to_cpu, getattr(config, "rank0_only", False))
    is_sharded = any(isinstance(module, FSDPModule) for module in model.modules())
    return offload(model.state_dict()) if is_sharded and config.offload_to_cpu else model.state_dict()


def state_dict_of(
    model: nn.Module, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
) -> dict[str, Any]:
    """`model_state_dict` with `model.state_dict`'s arguments. Collective."""
    if not any(isinstance(module, FSDPModule) for module in model.modules()):
        return model.state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)  # type: ignore[arg-type]
    if keep_vars:
        raise NotImplementedError("keep_vars: what is gathered has no graph")
    state = {f"{prefix}{name}": value for name, value in model_state_dict(model).items()}
    if destination is None:
        return state
    destination.update(state)
    return destination


def load_model_state_dict(model: nn.Module, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
    """`model.load_state_dict(...)` in the kind that was set. Collective."""
    if get_state_dict_type(model).state_dict_type is StateDictType.FULL_STATE_DICT:
        return load_full_state_dict(model, state_dict, strict)
    return model.load_state_dict(state_dict, strict=strict)


def optim_state_dict(model: nn.Module, optim: torch.optim.Optimizer) -> dict[str, Any]:
    """FSDP1's `FSDP.optim_state_dict` in the kind that was set. Collective."""
    config = get_state_dict_type(model).optim_state_dict_config
    if get_state_dict_type(model).state_dict_type is StateDictType.LOCAL_STATE_DICT:
        raise NotImplementedError("FSDP1 had no LOCAL_STATE_DICT of optimizers either")
    if get_state_dict_type(model).state_dict_type is StateDictType.FULL_STATE_DICT:
        rank0_only = getattr(config, "rank0_only", False)
        return full_optim_state_dict(model, optim, rank0_only, config.offload_to_cpu, has_stepped=False)
    return read_optimizer_state(model, optim, options=StateDictOptions(cpu_offload=config.offload_to_cpu))
