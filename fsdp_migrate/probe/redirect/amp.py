"""Autocast and gradient scaling for "cuda" become those for the CPU."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.amp import GradScaler, autocast

from fsdp_migrate.probe.passing import passed_on
from fsdp_migrate.probe.redirect.device import is_accelerator


def redirect_amp() -> None:
    enter, scaler_init = autocast.__init__, GradScaler.__init__

    @functools.wraps(enter)
    def autocast_on_cpu(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if is_accelerator(device_type):  # CUDA's default is fp16, the CPU's bf16
            device_type, dtype = "cpu", dtype or torch.float16
        passed_on(enter, self, device_type, dtype, *args, **kwargs)

    @functools.wraps(scaler_init)
    def scaler_on_cpu(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        passed_on(scaler_init, self, "cpu" if is_accelerator(device) else device, *args, **kwargs)

    autocast.__init__ = autocast_on_cpu  # type: ignore[method-assign]
    GradScaler.__init__ = scaler_on_cpu  # type: ignore[method-assign]
