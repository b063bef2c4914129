"""FSDP1's words for state dicts as plain data: the same names, members and fields as in `torch.distributed.fsdp`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class StateDictType(Enum):
    """FSDP1's kinds of checkpoint. FSDP2 has no flat parameters, so nothing can be saved as `LOCAL_STATE_DICT`."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


class OptimStateKeyType(Enum):
    """FSDP1's kinds of keys of an optimizer state dict."""

    PARAM_NAME = auto()
    PARAM_ID = auto()


@dataclass
class StateDictConfig:
    """What FSDP1's model state dict settings have in common."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """FSDP1's settings for a gathered model state dict."""

    rank0_only: bool = False


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """FSDP1's settings for `LOCAL_STATE_DICT`, for configs that name it."""


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """FSDP1's settings for a sharded model state dict. FSDP2 shards are always DTensors."""

    _use_dtensor: bool = False


@dataclass
class OptimStateDictConfig:
    """What FSDP1's optimizer state dict settings have in common."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """FSDP1's settings for a gathered optimizer state dict."""

    rank0_only: bool = False


@dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """FSDP1's settings for `LOCAL_STATE_DICT`, for configs that name it."""

    offload_to_cpu: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """FSDP1's settings for a sharded optimizer state dict. FSDP2 shards are always DTensors."""

    _use_dtensor: bool = False


@dataclass
class StateDictSettings:
    """What FSDP1's `set_state_dict_type` returned."""

    state_dict_type: StateDictType
    state_dict_config: StateDictConfig
    optim_state_dict_config: OptimStateDictConfig
