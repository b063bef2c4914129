"""Which devices are translated to the CPU."""

from __future__ import annotations

from typing import Any

import torch

CPU = torch.device("cpu")
RealDevice = torch.device
_ACCELERATORS = frozenset({"cuda", "xpu", "hpu", "npu", "mps"})


def is_accelerator(value: object) -> bool:
    """Whether `value` names an accelerator: a device, or a string such as "cuda:1"."""
    if isinstance(value, RealDevice):
        return value.type in _ACCELERATORS
    return isinstance(value, str) and value.split(":")[0] in _ACCELERATORS


def to_cpu(value: Any) -> Any:
    """An accelerator becomes the CPU; all else stays."""
    return CPU if is_accelerator(value) else value


def device_to_cpu(value: Any) -> Any:
    """The same where a bare int can only be a device index."""
    is_index = isinstance(value, int) and not isinstance(value, bool)
    return CPU if is_index or is_accelerator(value) else value
