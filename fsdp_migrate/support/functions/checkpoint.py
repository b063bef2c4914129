"""Checkpoints in FSDP1's formats."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import FSDPModule

from .api import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    OptimStateDictConfig,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from .summon import full_tensor

# What `set_state_dict_type` set, by model.
STATE_DICT_SETTINGS: WeakKeyDictionary[nn.Module, StateDictSettings] = WeakKeyDictionary()


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
    full: dict[str, Any] = gather(get_model_state_dict(model), offload_to_cpu, rank0_only)
    return {} if rank0_only and dist.get_rank() != 0 else full


def load_full_state_dict(model: nn.Module, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
    """Load the state dict of the unsharded model. Only the first rank needs to have it.

    Broadcasting is also what makes a missing key an error: without it, torch says that all keys matched.
    """
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=strict)
    return set_model_state_dict(model, dict(state_dict), options=options)


def full_optim_state_dict(
    model: nn.Module, optim: torch.optim.Optimizer, offload_to_cpu: bool = True, rank0_only: bool = False
) -> dict[str, Any]:
    """FSDP1's full optimizer state dict, keyed by parameter name. Every rank has to call this."""
    full: dict[str, Any] = gather(get_optimizer_state_dict(model, optim), offload_to_cpu, rank0_only)
    return {} if rank0_only and dist.get_rank() != 0 else full


def load_full_optim_state_dict(
    model: nn.Module, optim: torch.optim.Optimizer, optim_state_dict: Mapping[str, Any] | None
) -> None:
    """Load a full optimizer state dict. Only the first rank needs to have it.

    FSDP1 without use_orig_params saved one `step` tensor for all parameters of a unit. Loaded as they are, every
    parameter would advance it, so each gets its own.
    """
    state = {
        name: {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in values.items()}
        for name, values in (optim_state_dict or {}).get("state", {}).items()
    }
    own = {**optim_state_dict, "state": state} if optim_state_dict else {}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_optimizer_state_dict(model, optim, own, options=options)


def get_state_dict_type(model: nn.Module) -> StateDictSettings:
    """The kind of checkpoint that was set for a model; FULL_STATE_DICT to begin with."""
    default = StateDictSettings(StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig())
    return STATE_DICT_SETTINGS.get(model, default)


def set_state_dict_type(
    model: nn.Module,
    state_dict_type: StateDictType,
    state_dict_config: StateDictConfig | None = None,
    optim_state_dict_config: OptimStateDictConfig | None = None,
) -> StateDictSettings:
    """FSDP1's `FSDP.set_state_dict_type`, for `model_state_dict` and its like. Returns the settings so far."""
    if state_dict_type is StateDictType.LOCAL_STATE_DICT:
        raise NotImplementedError(
            "FSDP2 has no flat parameters to save as LOCAL_STATE_DICT: use SHARDED_STATE_DICT, and convert old "
            "checkpoints with an FSDP1 script that loads LOCAL and saves SHARDED"
        )
    before = get_state_dict_type(model)
    full = state_dict_type is StateDictType.FULL_STATE_DICT
    STATE_DICT_SETTINGS[model] = StateDictSettings(
        state_dict_type,
        state_dict_config or (FullStateDictConfig() if full else ShardedStateDictConfig()),
        optim_state_dict_config or (FullOptimStateDictConfig() if full else ShardedOptimStateDictConfig()),
    )
    return before


@contextmanager
def state_dict_type(
    model: nn.Module,
    state_dict_type: StateDictType,
    state_dict_config: StateDictConfig | None = None,
    optim_state_dict_config: OptimStateDictConfig | None = None,
) -> Generator[None, None, None]:
    """FSDP1's `FSDP.state_dict_type`, for `model_state_dict` and its like: `model.state_dict()` does not see it."""
    before = set_state_dict_type(model, state_dict_type, state_dict_config, optim_state_dict_config)
    try:
        yield
    finally:
        STATE_DICT_SETTINGS[model] = before


def is_full(model: nn.Module) -> bool:
    """Whether checkpoints of a model are gathered ones."""
    return get_state_dict_type(model).state_dict_type is StateDictType.FULL_STATE_DICT


def model_state_dict(model: nn.Module) -> dict[str, Any]:
    """`model.state_dict()` of an FSDP1 model, in the kind that was set for it. Every rank has to call this."""
    if not any(isinstance(module, FSDPModule) for module in model.modules()):
        return model.state_dict()  # DDP, or not distributed at all
    config = get_state_dict_type(model).state_dict_config
    if is_full(model):
        return full_state_dict(model, config.offload_to_cpu, getattr(config, "rank0_only", False))
    return get_model_state_dict(model, options=StateDictOptions(cpu_offload=config.offload_to_cpu))


def load_model_state_dict(model: nn.Module, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
    """`model.load_state_dict(...)` of an FSDP1 model, in the kind that was set for it. Every rank has to call this."""
    if not any(isinstance(module, FSDPModule) for module in model.modules()):
        return model.load_state_dict(state_dict, strict=strict)  # DDP, or not distributed at all
    if is_full(model):
        return load_full_state_dict(model, state_dict, strict)
    return set_model_state_dict(model, dict(state_dict), options=StateDictOptions(strict=strict))


def optim_state_dict(model: nn.Module, optim: torch.optim.Optimizer) -> dict[str, Any]:
    """FSDP1's `FSDP.optim_state_dict`, in the kind that was set for the model. Every rank has to call this."""
    config = get_state_dict_type(model).optim_state_dict_config
    if is_full(model):
        return full_optim_state_dict(model, optim, config.offload_to_cpu, getattr(config, "rank0_only", False))
    return get_optimizer_state_dict(model, optim, options=StateDictOptions(cpu_offload=config.offload_to_cpu))


def load_optim_state_dict(
    model: nn.Module, optim: torch.optim.Optimizer, optim_state_dict: Mapping[str, Any] | None
) -> None:
    """FSDP1's `FSDP.optim_state_dict_to_load` and the `optim.load_state_dict` after it, in one."""
    if is_full(model):
        load_full_optim_state_dict(model, optim, optim_state_dict)
    else:
        set_optimizer_state_dict(model, optim, dict(optim_state_dict or {}))
