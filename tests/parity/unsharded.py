"""A model that is not sharded, under FSDP1's name: what a program computes whose weights are never stale."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Unsharded(DistributedDataParallel):
    def __init__(self, module: nn.Module, **_: Any) -> None:
        super().__init__(module, broadcast_buffers=False)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        return torch.nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)
