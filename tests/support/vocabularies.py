"""FSDP1 and the support module behind the same names, made to run on the CPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import fsdp2_support
import torch
import torch.distributed.fsdp as fsdp1
import torch.distributed.fsdp._init_utils as init_utils
import torch.distributed.fsdp.wrap as fsdp1_wrap
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

CPU = torch.device("cpu")

# FSDP1 refuses to broadcast CPU tensors; with gloo it can.
init_utils._check_module_states_for_sync_module_states = lambda module_states: None


def fsdp1_shard_model(module: nn.Module, **kwargs: Any) -> nn.Module:
    return FSDP(module, device_id=CPU, **{"use_orig_params": True, **kwargs})


def fsdp2_shard_model(module: nn.Module, **kwargs: Any) -> nn.Module:
    return fsdp2_support.shard_model(module, device_id=CPU, **{"use_orig_params": True, **kwargs})


FSDP1 = SimpleNamespace(**{**vars(fsdp1), **vars(fsdp1_wrap), "shard_model": fsdp1_shard_model})
# Policies stay torch's own.
FSDP2 = SimpleNamespace(**{**vars(fsdp1_wrap), **vars(fsdp2_support), "shard_model": fsdp2_shard_model})
