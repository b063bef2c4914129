"""Values for units on the meta device, before they are sharded."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor


def initialize_unit(
    unit: nn.Module, param_init_fn: Callable[[nn.Module], object] | None, ignored: Collection[nn.Module] = ()
) -> None:
    """Initialize what lies on meta before it is sharded, in FSDP1's order."""
    tensors = (*unit.parameters(), *unit.buffers())
    if ignored:
        kept = {id(tensor) for module in ignored for tensor in (*module.parameters(), *module.buffers())}
        tensors = tuple(tensor for tensor in tensors if id(tensor) not in kept)
    if param_init_fn is not None and any(tensor.is_meta for tensor in tensors):
        modules = [unit]
        for module in modules:  # grows: parents first, without nested units
            inner = [m for m in module.children() if not isinstance(m, FSDPModule) and m not in ignored]
            modules += [m for m in inner if m not in modules]
            param_init_fn(module)


@torch.no_grad()
def reset_unit(unit: nn.Module, device: int | str | torch.device) -> None:
    """Initialize what lies on meta before it is sharded, in FSDP1's order."""
    if any(tensor.is_meta for tensor in (*unit.parameters(), *unit.buffers())):
        modules = [unit]
        for module in modules:  # grows: parents first, without nested units
            inner = [m for m in module.children() if not isinstance(m, FSDPModule)]
            modules += [m for m in inner if m not in modules]
            if [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
                module.to_empty(device=device, recurse=False)
                module.reset_parameters()  # type: ignore[operator]


def broadcast_unit(
    unit: nn.Module,
    device: int | str | torch.device,
    group: dist.ProcessGroup | None = None,
    ignored_params: Collection[nn.Parameter] = (),
) -> None:
    """Give every rank the first one's values. Collective."""
    for module in unit.modules():
        if any(
            t.is_meta
            for t in (*module.parameters(recurse=False), *module.buffers(recurse=False))
            if t not in ignored_params
        ):
            module.to_empty(device=device, recurse=False)
    for tensor in (*unit.parameters(), *unit.buffers()):
        if not isinstance(tensor, DTensor) and tensor not in ignored_params:  # a nested unit's are broadcast already
            tensor.data = tensor.data.to(device)
            dist.broadcast(tensor.data, group=group, group_src=0)
