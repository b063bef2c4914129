"""Tensor functions: `.cuda()`, `.to(0)`, `device="cuda"`, pinned memory."""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.utils._device as device_context
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fsdp_migrate.probe.passing import passed_on
from fsdp_migrate.probe.redirect.device import RealDevice, device_to_cpu, is_accelerator, to_cpu


class CudaToCpu(TorchFunctionMode):
    """Translates the device arguments of every torch function."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is RealDevice:  # torch.device(…) itself comes through here on recent versions
            return passed_on(_make_device, *args, **kwargs)
        if func in (Tensor.cuda, Tensor.pin_memory):
            return args[0]
        if func is Tensor.is_pinned:
            return False
        if func is Tensor.to and len(args) > 1:
            args = (args[0], device_to_cpu(args[1]), *args[2:])
        if "device" in kwargs:
            kwargs["device"] = device_to_cpu(kwargs["device"])
        if kwargs.get("pin_memory") is True:
            kwargs["pin_memory"] = False
        if any(is_accelerator(arg) for arg in args):
            args = tuple(to_cpu(arg) for arg in args)
        return passed_on(func, *args, **kwargs)


def redirect_tensors() -> None:
    CudaToCpu().__enter__()  # type: ignore[no-untyped-call]
    # Its argument is checked before the function mode is asked.
    Tensor.record_stream = lambda self, stream: None  # type: ignore[method-assign,assignment]
    _follow_into_threads()
    _redirect_device_constructor()
    _redirect_generator()
    _redirect_contexts()
    load = torch.load

    def load_to_cpu(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        keep = isinstance(map_location, (str, RealDevice)) and not is_accelerator(map_location)
        return passed_on(load, f, map_location if keep or callable(map_location) else "cpu", *args, **kwargs)

    torch.load = load_to_cpu


def _make_device(*args: Any, **kwargs: Any) -> torch.device:
    """A bare index means the accelerator, which torch does not know of on this machine."""
    if len(args) == 1 and isinstance(args[0], int) and not kwargs:
        return RealDevice("cuda", args[0])
    return passed_on(RealDevice, *args, **kwargs)


def _follow_into_threads() -> None:
    """The stack of function modes is a thread's own."""
    run = threading.Thread.run

    def run_redirected(self: threading.Thread) -> None:
        with CudaToCpu():
            passed_on(run, self)

    threading.Thread.run = run_redirected  # type: ignore[method-assign]


class _Lookalike(type):
    """A class that makes instances of another: `isinstance` and `X | None` go on working."""

    real: type

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.real)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls or issubclass(subclass, cls.real)

    def __or__(cls, other: Any) -> Any:
        return cls.real | other

    def __ror__(cls, other: Any) -> Any:
        return other | cls.real

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.real

    def __hash__(cls) -> int:
        return hash(cls.real)


def _redirect_device_constructor() -> None:
    class device(metaclass=_Lookalike):
        real = RealDevice

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return _make_device(*args, **kwargs)

    device.__module__, device.__qualname__ = "torch", "device"
    torch.device = device  # type: ignore[misc]


def _redirect_generator() -> None:
    real_generator = torch.Generator

    class Generator(metaclass=_Lookalike):
        real = real_generator

        def __new__(cls, device: Any = "cpu") -> Any:
            return passed_on(real_generator, device=device_to_cpu(device))

    torch.Generator = Generator  # type: ignore[misc]


def _redirect_contexts() -> None:
    """`with torch.device("cuda"):` and `torch.set_default_device("cuda")`."""
    enter_context = device_context.DeviceContext.__init__
    set_default = torch.set_default_device

    def init(self: Any, device: Any) -> None:
        passed_on(enter_context, self, device_to_cpu(device))

    device_context.DeviceContext.__init__ = init  # type: ignore[method-assign]
    torch.set_default_device = lambda device: passed_on(set_default, to_cpu(device))
