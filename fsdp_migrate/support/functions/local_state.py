"""Files by rank: this rank's part of a model and of an optimizer, as this program saves it or as FSDP1 did.

FSDP1 cut the parameters of a unit, one behind the other, into as many pieces as there were ranks. They are read on as
many ranks as saved them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves

from .summon import write_shard
from .training import reshard_all, shard_groups

FLAT_PARAM = "_flat_param"
CHECKPOINTED = "_checkpoint_wrapped_module."


def flat_units(model: nn.Module) -> Iterator[tuple[str, dict[str, nn.Parameter]]]:
    """Units in FSDP1's order: the prefix and flattened parameters of each."""
    reshard_all(model)
    seen: set[nn.Parameter] = set()

    def visit(module: Any, prefix: str) -> Iterator[tuple[str, nn.Parameter]]:
        for name, param in module.named_parameters(recurse=False):
            if isinstance(param.data, DTensor) and param not in seen:
                seen.add(param)
                yield (prefix + name).replace(CHECKPOINTED, ""), param
        for name, child in module.named_children():
            if not isinstance(child, FSDPModule):
                yield from visit(child, f"{prefix}{name}.")

    for name, module in model.named_modules():
        if isinstance(module, FSDPModule):
            prefix = f"{name}." if name else ""
            yield prefix.replace(CHECKPOINTED, ""), dict(visit(module, prefix))


def all_ranks(param: torch.Tensor, own: Any) -> list[Any]:
    """What each rank that a parameter is sharded over has, in order."""
    groups = shard_groups(param)
    if not groups:
        return [own]
    everywhere = [None] * dist.get_world_size(groups[0])
    dist.all_gather_object(everywhere, own, group=groups[0])
    return everywhere


def joined(param: torch.Tensor, piece: torch.Tensor | None) -> torch.Tensor:
    """The pieces of all ranks, one behind the other."""
    about = all_ranks(param, None if piece is None else (piece.numel(), piece.dtype))
    dtype = next(each[1] for each in about if each is not None)
    sizes = [0 if each is None else each[0] for each in about]
    device = param.device_mesh.device_type if isinstance(param, DTensor) else param.device
    own = torch.zeros(max(sizes), dtype=dtype, device=device)
    if piece is not None:
        own[: piece.numel()] = piece.detach().flatten()
    pieces = [torch.empty_like(own) for _ in sizes]
    if len(sizes) == 1:
        pieces = [own]
    else:
        dist.all_gather(pieces, own, group=shard_groups(param)[0])
    return torch.cat([each[:size] for each, size in zip(pieces, sizes, strict=True)])


def part_of(param: torch.Tensor, full: Any) -> Any:
    """This rank's part of a full tensor; what is no such tensor, as it is."""
    if not isinstance(param, DTensor) or not isinstance(full, torch.Tensor) or full.shape != param.shape:
        return full
    part = torch.empty_like(param)
    write_shard(part, full)
    return part


def cut(flat: torch.Tensor, params: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """This rank's part of each parameter of a flat tensor, without padding."""
    parts, start = [], 0
    for param in params:
        parts.append(part_of(param, flat[start : start + param.numel()].view(param.shape)))
        start += param.numel()
    return parts


def local_piece(value: Any) -> Any:
    """This rank's piece of a `ShardedTensor`, or a plain tensor as it is."""
    if not hasattr(value, "local_shards"):
        return value
    shards = value.local_shards()
    return shards[0].tensor if shards else None


def refuse_flat_state(state_dict: Mapping[str, Any]) -> Mapping[str, Any]:
    """What this rank saved of an FSDP2 model or of its optimizer, as it is. Pieces of FSDP1 fail later."""
    tensors = [value for value in tree_leaves(dict(state_dict)) if isinstance(value, torch.Tensor) and value.dim()]
    if tensors and not any(isinstance(value, DTensor) for value in tensors):
        raise ValueError("this file holds flat pieces of FSDP1: save a full state dict with the FSDP1 program instead")
    return state_dict


def load_local_state_dict(model: nn.Module, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
    """Load this rank's state dict, or FSDP1's LOCAL_STATE_DICT. Collective."""
    if not any(name.endswith(FLAT_PARAM) for name in state_dict):
        return model.load_state_dict(state_dict, strict=strict)
    loaded = {name: value for name, value in state_dict.items() if not name.endswith(FLAT_PARAM)}
    for prefix, params in flat_units(model):
        if all(name in state_dict for name in params):  # use_orig_params=True
            for name, param in params.items():
                loaded[name] = cut(joined(param, state_dict[name]), [param])[0]
        elif params:
            first = next(iter(params.values()))
            flat = joined(first, local_piece(state_dict[prefix + FLAT_PARAM]))
            loaded.update(zip(params, cut(flat, list(params.values())), strict=True))
    return model.load_state_dict(loaded, strict=strict)


def flat_parameters(
    model: nn.Module, group: Mapping[str, Any], ids: Sequence[int]
) -> Iterator[tuple[int, list[nn.Parameter]]]:
    """The parameters of each entry of FSDP1's optimizer: one, or a unit's."""
    params = list(group["params"])
    if len(ids) == len(params):
        yield from ((each, [param]) for each, param in zip(ids, params, strict=True))
        return
    own = set(params)
    units = [[param for param in unit.values() if param in own] for _, unit in flat_units(model)]
    yield from zip(ids, filter(None, units), strict=True)


def cut_state(values: Mapping[str, Any], params: Sequence[torch.Tensor]) -> list[dict[str, Any]]:
    """Each parameter's state; a rank without a piece takes others' numbers."""
    numbers = {key: None if isinstance(value, torch.Tensor) and value.dim() else value for key, value in values.items()}
    everywhere = {key: value for each in reversed(all_ranks(params[0], numbers)) for key, value in each.items()}
    states: list[dict[str, Any]] = [{} for _ in params]
    for key, value in everywhere.items():
        parts = cut(joined(params[0], values.get(key)), params) if value is None else [deepcopy(value) for _ in params]
        for state, part in zip(states, parts, strict=True):
            state[key] = part
    return states


def load_local_optim_state_dict(model: nn.Module, optim: torch.optim.Optimizer, state_dict: Mapping[str, Any]) -> None:
    """Load what this rank saved of `optim.state_dict()`. Collective."""
    state = state_dict["state"]
    param = next(param for group in optim.param_groups for param in group["params"])
    if any(all_ranks(param, any(isinstance(v, DTensor) for values in state.values() for v in values.values()))):
        optim.load_state_dict(state_dict)  # type: ignore[arg-type]
        return
    loaded: dict[str, Any] = {"state": {}, "param_groups": []}
    count = 0
    for saved, group in zip(state_dict["param_groups"], optim.param_groups, strict=True):
        numbers = {param: number for number, param in enumerate(group["params"], count)}
        count += len(numbers)
        loaded["param_groups"].append({**saved, "params": list(numbers.values())})
        for each, params in flat_parameters(model, group, saved["params"]):
            for number, values in zip(map(numbers.get, params), cut_state(state.get(each, {}), params), strict=True):
                if values:
                    loaded["state"][number] = values
    optim.load_state_dict(loaded)
