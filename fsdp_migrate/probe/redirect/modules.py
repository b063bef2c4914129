"""`nn.Module.cuda()`, `.to("cuda")`, DataLoader's pinned memory, DDP's device ids, torch.compile."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.utils.data
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fsdp_migrate.probe.passing import passed_on
from fsdp_migrate.probe.redirect.device import device_to_cpu


def redirect_modules() -> None:
    to, to_empty = nn.Module.to, nn.Module.to_empty

    @functools.wraps(to)
    def to_cpu(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = device_to_cpu(kwargs["device"])
        return passed_on(to, self, *(device_to_cpu(arg) for arg in args[:1]), *args[1:], **kwargs)

    @functools.wraps(to_empty)
    def to_empty_cpu(self: nn.Module, *, device: Any, recurse: bool = True) -> Any:
        return passed_on(to_empty, self, device=device_to_cpu(device), recurse=recurse)

    def cuda(self: nn.Module, device: Any = None) -> Any:
        return passed_on(to, self, "cpu")

    nn.Module.to = to_cpu  # type: ignore[method-assign]
    nn.Module.to_empty = to_empty_cpu  # type: ignore[method-assign]
    nn.Module.cuda = cuda  # type: ignore[method-assign]
    _redirect_loader()
    _redirect_ddp()
    _switch_compile_off()


def _redirect_loader() -> None:
    init = torch.utils.data.DataLoader.__init__

    @functools.wraps(init)
    def without_pinning(self: Any, *args: Any, **kwargs: Any) -> None:
        passed_on(init, self, *args, **{**kwargs, "pin_memory": False})

    torch.utils.data.DataLoader.__init__ = without_pinning  # type: ignore[method-assign]


def _redirect_ddp() -> None:
    init = DistributedDataParallel.__init__

    @functools.wraps(init)
    def on_cpu(
        self: Any, module: nn.Module, device_ids: Any = None, output_device: Any = None, *a: Any, **k: Any
    ) -> None:
        passed_on(init, self, module, None, None, *a, **k)

    DistributedDataParallel.__init__ = on_cpu  # type: ignore[method-assign]


def _switch_compile_off() -> None:
    """Compiling for the CPU needs a C++ compiler, and would prove nothing about compiling for CUDA."""

    def eager(model: Any = None, **kwargs: Any) -> Any:
        return model if model is not None else (lambda function: function)

    torch.compile = eager
    nn.Module.compile = lambda self, *args, **kwargs: None  # type: ignore[method-assign]
