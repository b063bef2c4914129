"""FSDP1's `summon_full_params`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate

from .training import reshard_all
from .units import unit_modules


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The whole of a sharded tensor; a plain one as it is. Collective."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def is_first_rank(model: nn.Module) -> bool:
    """Whether this is the first rank of the model's own, FSDP1's rank 0."""
    for param in model.parameters():
        if isinstance(param, DTensor):
            return param.device_mesh.get_local_rank(param.device_mesh.ndim - 1) == 0
    return dist.get_rank() == 0


def full_parameters(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter whole, to look at and not to write to. Collective."""
    reshard_all(model)
    return {name: full_tensor(param.detach()) for name, param in model.named_parameters()}


@torch.no_grad()
def write_shard(sharded: torch.Tensor, full: torch.Tensor) -> None:
    """Take this rank's piece of a full tensor, even if others' differ."""
    if isinstance(sharded, DTensor):
        mesh = sharded.device_mesh
        own = DTensor.from_local(full.detach().to(sharded.to_local().device), mesh, [Replicate()] * mesh.ndim)
        sharded.copy_(own.redistribute(mesh, sharded.placements))


@contextmanager
def full_params(
    module: nn.Module,
    recurse: bool = True,
    writeback: bool = True,
    rank0_only: bool = False,
    offload_to_cpu: bool = False,
    with_grads: bool = False,
) -> Generator[None, None, None]:
    """Whole parameters in place of the shards, to look into. Collective."""
    reshard_all(module)
    places = [
        (owner, name, param)
        for owner in (module.modules() if recurse else unit_modules(module))
        for name, param in owner.named_parameters(recurse=False, remove_duplicate=False)
        if isinstance(param, DTensor)
    ]
    if with_grads:
        grads = {param: full_tensor(param.grad) for _, _, param in places if param.grad is not None}
    whole = {}
    for param in dict.fromkeys(param for _, _, param in places):
        full = param.full_tensor().detach()
        if not rank0_only or is_first_rank(module):
            # A copy, since gathering over one rank gives the parameter itself.
            whole[param] = full.to("cpu", copy=True) if offload_to_cpu else full.clone()
    if rank0_only:
        places = [place for place in places if place[2] in whole]
    shown = {param: nn.Parameter(full, param.requires_grad) for param, full in whole.items()}
    if with_grads:
        for param, full in shown.items():
            full.grad = grads[param].to(full.device) if param in grads else None
    for owner, name, param in places:
        setattr(owner, name, shown[param])
    try:
        yield
    finally:
        for owner, name, param in places:
            setattr(owner, name, param)
            if writeback:  # what was written; not what was put in its place, `p.data = x`, which FSDP1 lost
                write_shard(param, whole[param])


def summon(param: nn.Parameter, device: str | None, with_grad: bool) -> nn.Parameter:
    """A whole parameter in place of a sharded one."""
    # A copy, since gathering over one rank gives the parameter itself.
    full = full_tensor(param.detach()).to(device, copy=True)
    whole = nn.Parameter(full, requires_grad=param.requires_grad)
    if with_grad and param.grad is not None:
        whole.grad = full_tensor(param.grad).to(device, copy=True)
    return whole


def looks_for_shards(hook: Any) -> bool:
    """Whether it is FSDP2's own, which takes over what a load put into a module."""
    return getattr(hook, "__module__", "").startswith("torch.distributed.fsdp")


class Summoned:
    """Whole parameters in the places of the shards of some modules."""

    def __init__(self, modules: Iterable[nn.Module], device: str | None, with_grads: bool, writeback: bool) -> None:
        self.places = [
            (owner, name, param)
            for owner in modules
            for name, param in owner.named_parameters(recurse=False, remove_duplicate=False)
            if isinstance(param, DTensor)
        ]
        params = dict.fromkeys(param for _, _, param in self.places)
        whole = {param: summon(param, device, with_grads) for param in params}
        self.whole = {(owner, name): whole[param] for owner, name, param in self.places}
        self.values = {param: full.detach() for param, full in whole.items()}
        self.writeback = writeback
        self.before: dict[nn.Parameter, torch.Tensor] = {}
        self.hooks = {owner: owner._load_state_dict_post_hooks for owner, _, _ in self.places}

    def show(self) -> None:
        for owner, name, _ in self.places:
            setattr(owner, name, self.whole[owner, name])
            owner._load_state_dict_post_hooks = OrderedDict(
                (key, hook) for key, hook in self.hooks[owner].items() if not looks_for_shards(hook)
            )

    def hide(self) -> None:
        """Put the shards back, with what was written; FSDP1 lost what was put in its place, `p.data = x`."""
        for owner, name, param in self.places:
            setattr(owner, name, param)
            owner._load_state_dict_post_hooks = self.hooks[owner]
            if not self.writeback and param not in self.before:
                self.before[param] = param.detach().clone()
            write_shard(param, self.values[param])

    def finish(self) -> None:
        """Put the shards back for good: with all that was written, or without any of it."""
        self.hide()
        for param, value in self.before.items():
            param.detach().copy_(value)
        for owner, name, param in self.places if self.writeback else ():
            grad = self.whole[owner, name].grad
            if param.grad is not None and grad is not None:
                write_shard(param.grad, grad)


@contextmanager
def summon_full_params(
    module: nn.Module,
    recurse: bool = True,
    writeback: bool = True,
    rank0_only: bool = False,
    offload_to_cpu: bool = False,
    with_grads: bool = False,
) -> Generator[None, None, None]:
    """Whole parameters in place of shards, to read and write. Collective.

    FSDP2's own `unshard` gathers in the low precision of the forward, and forgets what is written. While the model is
    called, the shards are back, with what was written so far: an FSDP2 model gathers by itself.
    """
    if rank0_only and writeback:
        raise NotImplementedError("rank0_only needs writeback=False: a rank without the values cannot write its shard")
    reshard_all(module)
    shown = not rank0_only or is_first_rank(module)
    modules = list(module.modules() if recurse else unit_modules(module))
    summoned = Summoned(modules, "cpu" if offload_to_cpu else None, with_grads, writeback)
    if not shown:
        summoned.places = []
    depth = 0

    def before_call(*_: Any) -> None:
        nonlocal depth
        depth += 1
        if depth == 1:
            summoned.hide()

    def after_call(*_: Any) -> None:
        nonlocal depth
        depth -= 1
        if depth == 0:
            reshard_all(module)
            summoned.show()

    hooks = []
    for unit in module.modules():
        if isinstance(unit, FSDPModule):
            hooks.append(unit.register_forward_pre_hook(before_call, prepend=True))
            hooks.append(unit.register_forward_hook(after_call, always_call=True))
    summoned.show()
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        summoned.finish()
