"""`torch.cuda.*` as a machine with one CUDA device a process would answer."""

from __future__ import annotations

import collections
import contextlib
import os
import resource
import sys
import time
import types
from typing import Any

import torch
import torch.cuda.nccl

from fsdp_migrate.probe.redirect.device import CPU, RealDevice

_DO_NOTHING = (
    "empty_cache",
    "init",
    "ipc_collect",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "set_stream",
    "set_sync_debug_mode",
    "synchronize",
    "_lazy_init",
)
_MEMORY = (
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "memory_cached",
    "max_memory_cached",
)
_GIB = 2**30


def redirect_cuda_api(processes: int) -> None:
    cuda: Any = torch.cuda
    _devices(cuda, processes)
    _memory(cuda)
    for name in _DO_NOTHING:
        setattr(cuda, name, _nothing)
    cuda.Stream, cuda.Event = Stream, Event
    cuda.current_stream = cuda.default_stream = lambda *args, **kwargs: Stream()
    cuda.stream = cuda.StreamContext = lambda stream: contextlib.nullcontext()
    cuda.device = lambda device=None: contextlib.nullcontext()
    cuda.get_rng_state = lambda *args, **kwargs: torch.get_rng_state()
    cuda.set_rng_state = lambda state, *args, **kwargs: torch.set_rng_state(state)
    cuda.get_rng_state_all = lambda: [torch.get_rng_state()]
    cuda.set_rng_state_all = lambda states: torch.set_rng_state(states[0])
    torch.cuda.nccl.version = lambda: (2, 21, 5)
    torch.version.cuda = "12.4"
    torch._C._cuda_getCurrentRawStream = lambda device: 0


def _devices(cuda: Any, processes: int) -> None:
    chosen: dict[str, int] = {}

    def set_device(device: Any) -> None:
        if isinstance(device, int):
            chosen["index"] = device
        else:
            chosen["index"] = (device if isinstance(device, RealDevice) else RealDevice(device)).index or 0

    def count() -> int:
        return int(os.environ.get("LOCAL_WORLD_SIZE", processes))

    cuda.is_available = lambda: _asked_by_the_program()
    cuda.device_count = lambda: count() if _asked_by_the_program() else 0
    cuda.is_initialized = lambda: False
    cuda.set_device = set_device
    cuda.current_device = lambda: chosen.get("index", int(os.environ.get("LOCAL_RANK", 0)))
    properties = types.SimpleNamespace(
        name="cpu", total_memory=80 * _GIB, major=8, minor=0, multi_processor_count=1, gcnArchName=""
    )
    cuda.get_device_properties = lambda *args, **kwargs: properties
    cuda.get_device_name = lambda *args, **kwargs: "cpu"
    # A program that has torchao asks whether there is float8, which is emulated.
    cuda.get_device_capability = lambda *args, **kwargs: (9, 0) if "torchao" in sys.modules else (8, 0)
    cuda.is_bf16_supported = lambda *args, **kwargs: True
    cuda.utilization = lambda *args, **kwargs: 0


def _memory(cuda: Any) -> None:
    for name in _MEMORY:
        setattr(cuda, name, lambda *args, **kwargs: _resident_bytes())
    cuda.memory_stats = lambda *args, **kwargs: collections.defaultdict(
        int, {"allocated_bytes.all.peak": _resident_bytes()}
    )
    cuda.memory_summary = lambda *args, **kwargs: "no CUDA memory: run on the CPU"
    cuda.mem_get_info = lambda *args, **kwargs: (64 * _GIB, 80 * _GIB)
    cuda.memory._record_memory_history = _nothing
    cuda.memory._dump_snapshot = _nothing


_WITH_KERNELS = (
    "torch",
    "bitsandbytes",
    "flash_attn",
    "xformers",
    "apex",
    "transformer_engine",
    "triton",
    "deepspeed",
    "torchao",
)
"""Packages with CUDA kernels of their own. They look whether there is a GPU, and would launch them."""


def _asked_by_the_program() -> bool:
    """torch's own code, and others' with kernels, must go on seeing that there is no CUDA, else they call into it."""
    frame = sys._getframe(2)
    if frame.f_code.co_filename == __file__:
        frame = sys._getframe(3)
    name = frame.f_globals.get("__name__", "")
    return name.split(".")[0] not in _WITH_KERNELS and not name.startswith("fsdp_migrate.probe")


def _resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


class Stream(contextlib.AbstractContextManager["Stream"]):
    """Work on the CPU is done when its call returns: there is nothing to wait for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device, self.cuda_stream = CPU, 0

    def __exit__(self, *exc: object) -> None:
        return None

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record()
        return event

    def query(self) -> bool:
        return True

    wait_stream = wait_event = synchronize = _nothing


class Event:
    """Takes the time when recorded."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._time = time.perf_counter()

    def record(self, stream: Any = None) -> None:
        self._time = time.perf_counter()

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds."""
        return (other._time - self._time) * 1e3

    def query(self) -> bool:
        return True

    synchronize = wait = _nothing
