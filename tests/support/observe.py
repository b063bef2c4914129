"""What can be seen of a model and its training: units, collectives, values. The same words for FSDP1 and FSDP2."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.fsdp as fsdp1
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.tensor import DTensor

from fsdp_migrate.probe.units import fsdp2_groups

STEPS = 4

CALLS: Counter[str] = Counter()
"""The collectives since it was cleared."""

COLLECTIVES = {
    "all_gather": "all-gather",
    "all_gather_into_tensor": "all-gather",
    "all_gather_single": "all-gather",
    "reduce_scatter_tensor": "reduce-scatter",
    "reduce_scatter_single": "reduce-scatter",
    "all_reduce": "all-reduce",
}


def count_collectives() -> None:
    for name, kind in COLLECTIVES.items():
        call = getattr(dist, name, None)
        if call is None:
            continue

        def counted(*args: Any, _kind: str = kind, _call: Any = call, **kwargs: Any) -> Any:
            CALLS[_kind] += 1
            return _call(*args, **kwargs)

        setattr(dist, name, counted)


def fsdp1_units(model: nn.Module) -> dict[str, Any]:
    """Parameter names of each unit, with the ranks it is sharded and replicated over."""
    units = {}
    for prefix, module in model.named_modules():
        if isinstance(module, FSDP) and module._handle:
            path = clean(prefix + "." if prefix else "")
            names = sorted(clean(path + name) for name in module._handle.flat_param._fqns)
            group = dist.get_process_group_ranks(module.process_group)
            other = getattr(module, "_inter_node_pg", None)
            replicas = dist.get_process_group_ranks(other) if other else [dist.get_rank()]
            if module.sharding_strategy is fsdp1.ShardingStrategy.NO_SHARD:
                group, replicas = replicas, group
            units[" ".join(names)] = [group, replicas]
    return units


def fsdp2_units(model: nn.Module) -> dict[str, Any]:
    names = {id(p): n for n, p in reversed(list(model.named_parameters(remove_duplicate=False)))}
    units = {}
    for _, group in fsdp2_groups(model):
        mesh = group.mesh_info.mesh
        ranks = [dist.get_process_group_ranks(mesh.get_group(dim)) for dim in range(mesh.ndim)]
        owned = sorted(names[id(param.sharded_param)] for param in group.fsdp_params)
        units[" ".join(owned)] = [ranks[-1], ranks[0] if len(ranks) == 2 else [dist.get_rank()]]
    return units


def units_of(model: nn.Module) -> dict[str, Any]:
    fsdp1_model = any(isinstance(module, FSDP) for module in model.modules())
    return fsdp1_units(model) if fsdp1_model else fsdp2_units(model)


def full_state(model: nn.Module) -> dict[str, torch.Tensor]:
    with FSDP.summon_full_params(model, writeback=False):
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        return {clean(n): full(t).detach().clone() for n, t in tensors.items()}


def full(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def clean(name: str) -> str:
    return name.replace("_fsdp_wrapped_module.", "")


def train(
    build: Callable[[], nn.Module],
    optimizer: Callable[..., torch.optim.Optimizer],
    seed_by_rank: bool = False,
    input_dtype: torch.dtype = torch.float32,
) -> dict[str, Any]:
    """What a few steps of the model that `build` makes and wraps look like."""
    rank = dist.get_rank()
    torch.manual_seed(7 + rank if seed_by_rank else 7)
    model = build()
    units = units_of(model)
    steps = optimizer(model.parameters(), foreach=False)
    data = torch.Generator().manual_seed(11 + rank)
    losses = []
    for _ in range(STEPS):
        CALLS.clear()
        x = torch.randn(6, 8, generator=data).to(input_dtype)
        output = model(x)
        loss = output.float().square().mean()
        steps.zero_grad()
        loss.backward()
        steps.step()
        losses.append(loss.item())
    collectives = dict(CALLS)
    state = full_state(model)
    tensors = {name: str(tensor.dtype) for name, tensor in sorted(state.items())}
    tensors["what forward returns"] = str(output.dtype)
    return {"units": units, "losses": losses, "collectives": collectives, "tensors": tensors, "state": state}


def compare(before: Callable[[], nn.Module], after: Callable[[], nn.Module], *options: Any) -> dict[str, Any]:
    """Both trainings, and how far apart their parameters and buffers end."""
    old, new = train(before, *options), train(after, *options)
    states = old.pop("state"), new.pop("state")
    distances = [(states[0][n].double() - states[1][n].double()).abs().max() for n in states[0].keys() & states[1]]
    return {"old": old, "new": new, "distance": float(max(distances))}
