"""FSDP1's `summon_full_params`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Replicate

from .training import reshard_all


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The whole of a sharded tensor, or a plain tensor as it is. Every rank has to call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def full_parameters(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter as a whole, to look at and not to write to. Every rank has to call this."""
    reshard_all(model)
    return {name: full_tensor(param.detach()) for name, param in model.named_parameters()}


@torch.no_grad()
def write_shard(sharded: torch.Tensor, full: torch.Tensor) -> None:
    """Take this rank's piece of a full tensor. Ranks whose full tensors differ keep a piece of each, as in FSDP1."""
    if isinstance(sharded, DTensor):
        mesh = sharded.device_mesh
        own = DTensor.from_local(full.detach().to(sharded.to_local().device), mesh, [Replicate()] * mesh.ndim)
        sharded.copy_(own.redistribute(mesh, sharded.placements))


def summon(param: nn.Parameter, device: str | None, with_grad: bool) -> nn.Parameter:
    """A whole parameter in place of a sharded one."""
    # A copy, since gathering over one rank gives the parameter itself.
    full = full_tensor(param.detach()).to(device, copy=True)
    whole = nn.Parameter(full, requires_grad=param.requires_grad)
    if with_grad and param.grad is not None:
        whole.grad = full_tensor(param.grad).to(device, copy=True)
    return whole


@contextmanager
def summon_full_params(
    module: nn.Module,
    recurse: bool = True,
    writeback: bool = True,
    rank0_only: bool = False,
    offload_to_cpu: bool = False,
    with_grads: bool = False,
) -> Generator[None, None, None]:
    """Whole parameters in place of the shards, to read and to write. Every rank has to come here.

    FSDP2's own `unshard` gathers in the low precision of the forward, and forgets what is written. Calls of the model
    do not belong in here: they gather by themselves.
    """
    if rank0_only and writeback:
        raise NotImplementedError("rank0_only needs writeback=False: a rank without the values cannot write its shard")
    reshard_all(module)
    places = [
        (owner, name, param)
        for owner in (module.modules() if recurse else [module])
        for name, param in owner.named_parameters(recurse=False, remove_duplicate=False)
        if isinstance(param, DTensor)
    ]
    device = "cpu" if offload_to_cpu else None
    full = {param: summon(param, device, with_grads) for param in dict.fromkeys(param for _, _, param in places)}
    if rank0_only and dist.get_rank() != 0:
        places = []
    for owner, name, param in places:
        setattr(owner, name, full[param])
    try:
        yield
    finally:
        for owner, name, param in places:
            written = getattr(owner, name)
            setattr(owner, name, param)
            if writeback:
                write_shard(param, written)
                if with_grads and param.grad is not None and written.grad is not None:
                    write_shard(param.grad, written.grad)
