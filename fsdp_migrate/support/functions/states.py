"""What FSDP1's constructor did to parameters and buffers before it sharded them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import torch
import torch.distributed as dist
from torch import nn

from .units import unit_modules


def materialize(
    unit: nn.Module,
    device: torch.device,
    param_init_fn: Callable[[nn.Module], None] | None = None,
    ignored_modules: Collection[nn.Module] = (),
) -> None:
    """Give a unit on the meta device its values before it is sharded, as FSDP1 did.

    Afterwards would draw other random numbers: the initialisation would see shards. Modules are visited in FSDP1's
    order, so that they draw the same ones.
    """
    modules = [module for module in unit_modules(unit) if module not in ignored_modules]
    own = {m: [*m.parameters(recurse=False), *m.buffers(recurse=False)] for m in modules}
    if not any(tensor.is_meta for tensors in own.values() for tensor in tensors):
        return
    if param_init_fn is not None:
        for module in modules:
            param_init_fn(module)
        return
    with torch.no_grad():
        for module in modules:
            if own[module]:
                module.to_empty(device=device, recurse=False)
                module.reset_parameters()  # type: ignore[operator]


def make_contiguous(modules: Iterable[nn.Module]) -> None:
    """Undo `channels_last`, which FSDP1 took for parameters and `fully_shard` does not. Inputs can keep it."""
    for module in modules:
        for param in module.parameters(recurse=False):
            if not param.is_contiguous():
                param.data = param.data.contiguous()


@torch.no_grad()
def broadcast_module_states(
    module: nn.Module,
    group: dist.ProcessGroup | None = None,
    device: torch.device | None = None,
    ignored_params: Collection[nn.Parameter] = (),
) -> None:
    """FSDP1's `sync_module_states`: every rank takes the parameters and buffers of the first rank of `group`.

    Call it before `fully_shard`, which keeps each rank's own piece: from ranks that differ it would make a model that
    is a patchwork of theirs. NCCL needs `device` when the model is still on the CPU.
    """
    src = 0 if group is None else dist.get_global_rank(group, 0)
    for owner in unit_modules(module):
        for tensor in (*owner.parameters(recurse=False), *owner.buffers(recurse=False)):
            if tensor in ignored_params:
                continue
            value = tensor.detach().to(device).contiguous()
            dist.broadcast(value, src=src, group=group)
            tensor.copy_(value)
