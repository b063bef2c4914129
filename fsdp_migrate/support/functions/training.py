"""The training loop: FSDP1's methods on the model, as functions that take an FSDP2 model or a DDP one."""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm


def unwrap(model: Any) -> Any:
    """The model inside of its wrapper. FSDP2 shards in place, without one."""
    return model if isinstance(model, FSDPModule) else model.module


def unwrap_compiled(model: Any) -> Any:
    """The model inside of its wrapper, and of `torch.compile`'s. FSDP2 shards in place, without one."""
    inner = model if isinstance(model, FSDPModule) else getattr(model, "_orig_mod", model)
    return inner if isinstance(inner, FSDPModule) else inner.module


def group_of(model: Any) -> Any:
    """The ranks that hold one copy of a model: FSDP1's `process_group`."""
    shards = [param for param in model.parameters() if isinstance(param, DTensor)]
    if not shards:
        return model.process_group  # DDP's
    mesh = shards[0].device_mesh
    # With NO_SHARD, FSDP1 named the ranks that share the gradients.
    return mesh.get_group(0 if mesh.shape[-1] == 1 else mesh.ndim - 1)


def reshard_all(model: nn.Module) -> None:
    """Reshard every unit: until then `parameters()` has unsharded copies."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def unit_params(unit: Any) -> list[DTensor]:
    """The shards of one unit, without those of nested ones: FSDP1's `params`."""
    unit.reshard()
    inner: list[Any] = [m for m in unit.modules() if m is not unit and isinstance(m, FSDPModule)]
    nested = {param for module in inner for param in module.parameters()}
    return [param for param in unit.parameters() if isinstance(param, DTensor) and param not in nested]


@contextmanager
def unsharded(model: Any) -> Generator[None, None, None]:
    """The root's own parameters whole, for methods beside `forward`."""
    model.unshard()
    try:
        yield
    finally:
        model.reshard()


@contextmanager
def unsynced(model: Any) -> Generator[None, None, None]:
    """Accumulate gradients without communication, where `backward` runs."""
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)


@contextmanager
def no_sync(model: Any) -> Generator[None, None, None]:
    """Accumulate gradients without communication, where `backward` runs."""
    with ExitStack() as stack:
        if hasattr(model, "set_requires_gradient_sync"):
            model.set_requires_gradient_sync(False)
            stack.callback(model.set_requires_gradient_sync, True)
        else:  # DDP has a context of its own
            stack.enter_context(model.no_sync())
        yield


def discard_unsynced_gradients(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
    """Drop never synchronised gradients, which `zero_grad` does not reach."""
    own = None if optimizer is None else {param for group in optimizer.param_groups for param in group["params"]}
    for module in model.modules():
        if isinstance(module, FSDPModule):
            state = module._get_fsdp_state()
            groups = state._fsdp_param_groups if hasattr(state, "_fsdp_param_groups") else [state._fsdp_param_group]
            for param in (param for group in groups if group is not None for param in group.fsdp_params):
                if own is not None and param.sharded_param not in own:
                    continue  # of another optimizer
                param.unsharded_accumulated_grad = None
                if hasattr(param, "_unsharded_param"):
                    param._unsharded_param.grad = None


def shard_groups(param: torch.Tensor) -> tuple[dist.ProcessGroup, ...]:
    """The process groups that a parameter is cut up over."""
    if not isinstance(param, DTensor):
        return ()
    mesh = param.device_mesh
    return tuple(
        mesh.get_group(dim)
        for dim, placement in enumerate(param.placements)
        if mesh.size(dim) > 1 and not placement.is_replicate()
    )


@torch.no_grad()
def clip_offloaded_grad_norm_(parameters: Iterable[Any], max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    """`torch.nn.utils.clip_grad_norm_` for gradients that are on the CPU."""
    params = [param for param in parameters if param.grad is not None]
    if not any(isinstance(param, DTensor) for param in params):  # a model that is not sharded
        return torch.nn.utils.clip_grad_norm_(params, max_norm, norm_type)
    mesh = params[0].device_mesh
    local = [param.grad.to_local() for param in params]
    norm = get_total_norm(local, norm_type).to(mesh.device_type) ** norm_type
    dist.all_reduce(norm, group=mesh.get_group(mesh.ndim - 1))  # which shards
    norm = norm ** (1 / norm_type)
    clip_grads_with_norm_(params, max_norm, norm)
    return norm


@torch.no_grad()
def clip_mixed_grad_norm_(parameters: Iterable[Any], max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    """`torch.nn.utils.clip_grad_norm_` where some parameters are plain."""
    params = [param for param in parameters if param.grad is not None]
    sharded: list[Any] = [param for param in params if isinstance(param, DTensor)]
    plain = [param for param in params if not isinstance(param, DTensor)]
    if not sharded:  # a model that is not sharded
        return torch.nn.utils.clip_grad_norm_(params, max_norm, norm_type)
    sharded_norm: Any = get_total_norm([param.grad for param in sharded], norm_type)
    plain_norm = get_total_norm([param.grad for param in plain], norm_type).to(sharded_norm.device)
    norm = get_total_norm([sharded_norm.full_tensor(), plain_norm], norm_type)
    for some in (sharded, plain):
        clip_grads_with_norm_(some, max_norm, norm)
    return norm


def norm_of_shards(params: Sequence[Any], norm_type: float) -> torch.Tensor:
    """The norm of sharded gradients; an empty shard has no infinity norm."""
    mesh, local = params[0].device_mesh, [param.grad.to_local() for param in params]
    op = dist.ReduceOp.MAX if math.isinf(norm_type) else dist.ReduceOp.SUM
    power = 1.0 if math.isinf(norm_type) else norm_type
    norm = get_total_norm([grad for grad in local if grad.numel()], norm_type).to(mesh.device_type) ** power
    dist.all_reduce(norm, op, mesh.get_group(mesh.ndim - 1))  # the last dimension shards, any before it replicates
    return norm ** (1 / power)


@torch.no_grad()
def clip_grad_norm_(parameters: Iterable[Any], max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    """`torch.nn.utils.clip_grad_norm_` for any norm type and any device."""
    params = [param for param in parameters if param.grad is not None]
    if not any(isinstance(param, DTensor) for param in params):  # a model that is not sharded
        return torch.nn.utils.clip_grad_norm_(params, max_norm, norm_type)
    norm = norm_of_shards(params, float(norm_type))
    clip_grads_with_norm_(params, max_norm, norm)
    return norm


@torch.no_grad()
def clip_any_grad_norm_(parameters: Iterable[Any], max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    """`clip_grad_norm_` where some parameters are plain."""
    params = [param for param in parameters if param.grad is not None]
    sharded: list[Any] = [param for param in params if isinstance(param, DTensor)]
    plain = [param for param in params if not isinstance(param, DTensor)]
    if not sharded:  # a model that is not sharded
        return torch.nn.utils.clip_grad_norm_(params, max_norm, norm_type)
    norm = norm_of_shards(sharded, float(norm_type))
    plain_norm = get_total_norm([param.grad for param in plain], float(norm_type)).to(norm.device)
    norm = get_total_norm([norm, plain_norm], float(norm_type))
    if math.isinf(float(norm_type)):  # the largest of all ranks, as in FSDP1
        mesh = sharded[0].device_mesh
        dist.all_reduce(norm, dist.ReduceOp.MAX, mesh.get_group(mesh.ndim - 1))
    for some in (sharded, plain):
        clip_grads_with_norm_(some, max_norm, norm)
    return norm


@torch.no_grad()
def clip_grad_norm_on_meshes_(parameters: Iterable[Any], max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    """`torch.nn.utils.clip_grad_norm_` where parameters lie on several meshes; some may be plain."""
    by_mesh: dict[Any, list[Any]] = {}
    for param in parameters:
        if param.grad is not None:
            by_mesh.setdefault(getattr(param, "device_mesh", None), []).append(param)
    norms = [norm_of_shards(some, float(norm_type)) for mesh, some in by_mesh.items() if mesh is not None]
    norms.append(get_total_norm([param.grad for param in by_mesh.get(None, ())], float(norm_type)))
    norm = get_total_norm(norms, float(norm_type))
    for mesh in by_mesh:
        if mesh is not None and math.isinf(float(norm_type)):  # the largest of all ranks, as in FSDP1
            dist.all_reduce(norm, dist.ReduceOp.MAX, mesh.get_group(mesh.ndim - 1))
    for some in by_mesh.values():
        clip_grads_with_norm_(some, max_norm, norm)
    return norm


def plain_name(name: str) -> str:
    """A name without what checkpointing, torch.compile and DDP put in."""
    return re.sub(r"_checkpoint_wrapped_module\.|_orig_mod\.|^module\.", "", name)


def rebind_optimizer(
    optimizer: torch.optim.Optimizer, old_named_parameters: Iterable[tuple[str, nn.Parameter]], model: nn.Module
) -> None:
    """Have an optimizer from before `fully_shard` train its parameters.

    Take `old_named_parameters = list(model.named_parameters())` before sharding. `fully_shard` replaces every
    parameter, and an optimizer that holds the old ones trains nothing, without an error.
    """
    if optimizer.state:
        raise ValueError("the optimizer has state for the unsharded parameters: shard the model before the first step")
    names = {id(param): name for name, param in old_named_parameters}
    params = {plain_name(name): param for name, param in model.named_parameters()}
    kept = {id(param) for param in params.values()}
    for group in optimizer.param_groups:
        group["params"] = [
            params[plain_name(names[id(p)])] if id(p) in names and id(p) not in kept else p for p in group["params"]
        ]
