"""The training loop: FSDP1's methods on the model, as functions that take an FSDP2 model or a DDP one."""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor


def unwrap(model: nn.Module) -> nn.Module:
    """The model inside of its wrapper. FSDP2 shards in place, without one."""
    inner = model if isinstance(model, FSDPModule) else model.module
    assert isinstance(inner, nn.Module)
    return inner


def reshard_all(model: nn.Module) -> None:
    """Free what a forward without backward (evaluation, generation) left unsharded.

    Until then `model.parameters()` has temporary copies: an optimizer, a clipping or an EMA that takes them misses the
    real ones, without an error. `model.reshard()` alone does not reach nested units.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def free_shards(model: nn.Module) -> None:
    """Give back the memory of a model's parameters, whoever still holds on to them. It cannot be used afterwards."""
    reshard_all(model)
    for param in model.parameters():
        if isinstance(param, DTensor):
            param.to_local().untyped_storage().resize_(0)


@contextmanager
def no_sync(model: Any) -> Generator[None, None, None]:
    """Accumulate gradients without communication. What counts is where the backward runs."""
    if not hasattr(model, "set_requires_gradient_sync"):  # DDP has a context of its own
        with model.no_sync():
            yield
        return
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)


def discard_unsynced_gradients(model: nn.Module) -> None:
    """Drop the gradients of microbatches that no synchronised backward followed, as FSDP1's `zero_grad` did.

    FSDP2 keeps them where neither `optimizer.zero_grad()` nor `model.zero_grad()` reaches, and adds them to the next
    step. There is no public way to drop them.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            state = module._get_fsdp_state()
            groups = state._fsdp_param_groups if hasattr(state, "_fsdp_param_groups") else [state._fsdp_param_group]
            for param in (param for group in groups if group is not None for param in group.fsdp_params):
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
def clip_grad_norm_(
    model_or_parameters: nn.Module | Iterable[torch.Tensor], max_norm: float, norm_type: float = 2.0
) -> torch.Tensor:
    """FSDP1's `model.clip_grad_norm_`: clip by the norm over all ranks, and return that norm as a plain tensor.

    `torch.nn.utils.clip_grad_norm_` returns a DTensor, raises where some parameters are sharded and others are not,
    raises for `norm_type=inf` on ranks whose shard of a parameter is empty, and needs a CPU backend when parameters are
    offloaded.
    """
    if isinstance(model_or_parameters, nn.Module):
        reshard_all(model_or_parameters)
        model_or_parameters = model_or_parameters.parameters()
    params = list(model_or_parameters)
    if not params:
        return torch.tensor(0.0)
    norm_type = float(norm_type)
    # Norms live where the process groups communicate, which is not where offloaded parameters are.
    device = next((torch.device(p.device_mesh.device_type) for p in params if isinstance(p, DTensor)), params[0].device)
    grads: list[torch.Tensor] = []
    norms: dict[tuple[dist.ProcessGroup, ...], list[torch.Tensor]] = {}
    for param in params:
        # Every rank has every key, so that all take part in each reduction, whoever has a gradient.
        group_norms = norms.setdefault(shard_groups(param), [torch.zeros((), device=device)])
        if param.grad is not None:
            grad = param.grad.to_local() if isinstance(param.grad, DTensor) else param.grad
            grads.append(grad)
            if grad.numel():
                dtype = torch.promote_types(grad.dtype, torch.float32)
                group_norms.append(torch.linalg.vector_norm(grad, norm_type, dtype=dtype).to(device, torch.float32))
    norm = torch.zeros((), device=device)
    if math.isinf(norm_type):
        norm = torch.stack([n for group_norms in norms.values() for n in group_norms]).max()
        for group in dict.fromkeys(group for groups in norms for group in groups):
            dist.all_reduce(norm, dist.ReduceOp.MAX, group)
    else:
        for groups, group_norms in norms.items():
            power = torch.stack(group_norms).pow(norm_type).sum()
            for group in groups:
                dist.all_reduce(power, group=group)
            norm += power
        norm = norm ** (1 / norm_type)
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(scale.to(grad.device, grad.dtype))
    return norm


def plain_name(name: str) -> str:
    """A parameter's name without what activation checkpointing, torch.compile and DDP put into it."""
    return re.sub(r"_checkpoint_wrapped_module\.|_orig_mod\.|^module\.", "", name)


def rebind_optimizer(
    optimizer: torch.optim.Optimizer, old_named_parameters: Iterable[tuple[str, nn.Parameter]], model: nn.Module
) -> None:
    """Make an optimizer that was built before `fully_shard` train the sharded parameters.

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
