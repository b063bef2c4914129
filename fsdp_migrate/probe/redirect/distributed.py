"""NCCL calls on gloo: backends, barrier and device arguments, the average that gloo lacks, device meshes."""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch.distributed as dist
import torch.distributed.device_mesh as device_mesh
import torch.distributed.distributed_c10d as c10d

from fsdp_migrate.probe.passing import passed_on
from fsdp_migrate.probe.redirect.device import is_accelerator

_ACCELERATOR_BACKENDS = ("nccl", "rccl", "hccl", "xccl", "ucc")
_MESH_MODULES = (
    "torch.distributed",
    "torch.distributed.device_mesh",
    "torch.distributed.tensor",
    "torch.distributed._tensor",
    "torch.distributed._tensor.device_mesh",
    "torch.distributed.fsdp._fully_shard._fsdp_init",
)


def redirect_distributed() -> None:
    _redirect_groups()
    _redirect_collectives()
    _redirect_meshes()
    _put("is_nccl_available", lambda: True)


def _backend(backend: Any) -> Any:
    named = backend is not None and not any(word in str(backend).lower() for word in _ACCELERATOR_BACKENDS)
    return backend if named else "gloo"


def _redirect_groups() -> None:
    init, new_group = c10d.init_process_group, c10d.new_group

    @functools.wraps(init)
    def init_gloo(backend: Any = None, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("device_id", None)
        kwargs.pop("pg_options", None)
        passed_on(init, _backend(backend), *args, **kwargs)

    @functools.wraps(new_group)
    def new_gloo_group(ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("device_id", None)
        kwargs.pop("pg_options", None)
        return passed_on(new_group, ranks, timeout, None if backend is None else _backend(backend), *args, **kwargs)

    _put("init_process_group", init_gloo)
    _put("new_group", new_gloo_group)


def _redirect_collectives() -> None:
    barrier, all_reduce = c10d.barrier, c10d.all_reduce

    @functools.wraps(barrier)
    def barrier_of_ranks(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
        return passed_on(barrier, group=group, async_op=async_op)

    @functools.wraps(all_reduce)
    def all_reduce_with_average(
        tensor: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False
    ) -> Any:
        if op != dist.ReduceOp.AVG:
            return passed_on(all_reduce, tensor, op, group, async_op)
        passed_on(all_reduce, tensor, dist.ReduceOp.SUM, group)
        tensor.div_(dist.get_world_size(group))
        return _Done() if async_op else None

    _put("barrier", barrier_of_ranks)
    _put("all_reduce", all_reduce_with_average)


class _Done:
    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


def _redirect_meshes() -> None:
    make, init = device_mesh.init_device_mesh, device_mesh.DeviceMesh.__init__

    @functools.wraps(make)
    def make_on_cpu(device_type: str, *args: Any, **kwargs: Any) -> Any:
        return passed_on(make, "cpu" if is_accelerator(device_type) else device_type, *args, **kwargs)

    @functools.wraps(init)
    def init_on_cpu(self: Any, device_type: Any = None, *args: Any, **kwargs: Any) -> None:
        passed_on(init, self, "cpu" if is_accelerator(device_type) else device_type, *args, **kwargs)

    device_mesh.DeviceMesh.__init__ = init_on_cpu  # type: ignore[method-assign]
    for name in _MESH_MODULES:  # each has bound the function under its own name
        module = sys.modules.get(name)
        if module is not None and getattr(module, "init_device_mesh", None) is make:
            module.init_device_mesh = make_on_cpu  # type: ignore[attr-defined]


def _put(name: str, function: Any) -> None:
    setattr(c10d, name, function)
    setattr(dist, name, function)
