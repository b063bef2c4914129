"""An optimizer's state dict, keyed by parameter names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp.fully_sharded_data_parallel import OptimStateKeyType
from torch.distributed.tensor import DTensor

from .training import reshard_all


def read_optimizer_state(
    model: nn.Module, optim: torch.optim.Optimizer, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """An optimizer's state; torch lets one without any take a step first."""
    has_stepped = bool(optim.state)
    state_dict = get_optimizer_state_dict(model, optim, options=options)
    if not has_stepped:
        optim.state.clear()
        if state_dict:
            state_dict["state"] = {}
    return state_dict


def full_optim_state_dict(
    model: nn.Module,
    optim: torch.optim.Optimizer,
    rank0_only: bool = False,
    offload_to_cpu: bool = True,
    has_stepped: bool = True,
) -> dict[str, Any]:
    """FSDP1's full optimizer state dict, on every rank. Collective.

    With `rank0_only`, all but the first of the model's ranks get an empty dict.
    """
    shards: list[Any] = [param for param in model.parameters() if isinstance(param, DTensor)]
    is_kept = not rank0_only or (shards[0].device_mesh.get_coordinate()[-1] if shards else dist.get_rank()) == 0
    full: Any = get_optimizer_state_dict(model, optim) if has_stepped else read_optimizer_state(model, optim)
    for name, values in full["state"].items():
        whole = {key: each.full_tensor() if isinstance(each, DTensor) else each for key, each in values.items()}
        if is_kept:  # as copies: over one rank the whole is the tensor itself
            tensors = {
                key: value.to("cpu" if offload_to_cpu else value.device, copy=True)
                for key, value in whole.items()
                if torch.is_tensor(value)
            }
            full["state"][name] = {**whole, **tensors}
    return full if is_kept else {}


def load_optimizer_state(model: nn.Module, optim: torch.optim.Optimizer, state_dict: Mapping[str, Any] | None) -> None:
    """Load a full optimizer state that rank 0 has. Collective."""
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
    set_optimizer_state_dict(model, optim, state_dict or {}, options=options)  # type: ignore[arg-type]
    for group in optim.param_groups:  # of which torch drops what others lack
        settings = [{**group, "params": None}]
        dist.broadcast_object_list(settings, src=0)
        group.update({**settings[0], "params": group["params"]})


def optim_state_dict_to_load(
    model: nn.Module, optim: torch.optim.Optimizer, optim_state_dict: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Load an optimizer's state: sharded, or full on rank 0. Collective.

    What is returned is the optimizer's own state dict: to load that changes nothing more.
    """
    saved: Any = optim_state_dict or {}
    tensors = [v for values in saved.get("state", {}).values() for v in values.values() if torch.is_tensor(v)]
    bare = [None if tensors else saved]  # torch cannot broadcast a state that has no tensors
    dist.broadcast_object_list(bare, src=0)
    is_full = bare[0] is None and not any(isinstance(tensor, DTensor) for tensor in tensors)
    if is_full:
        load_optimizer_state(model, optim, saved)
    else:
        options = StateDictOptions(strict=False)
        set_optimizer_state_dict(model, optim, saved if bare[0] is None else bare[0], options=options)
    return optim.state_dict()


def renamed(state_dict: Mapping[str, Any] | None, rename: Callable[[str], str]) -> dict[str, Any]:
    """An optimizer state dict with other parameter names."""
    if not state_dict:
        return {}
    state = {rename(name): each for name, each in state_dict["state"].items()}
    groups = [{**group, "params": [*map(rename, group["params"])]} for group in state_dict["param_groups"]]
    return {"state": state, "param_groups": groups}


def with_compiled_names(model: nn.Module, state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """With the `_orig_mod.` of compiled modules, as FSDP1 saved it."""
    names = {key.replace("_orig_mod.", ""): key for key in model.state_dict()}
    return renamed(state_dict, lambda name: names.get(name, name))


def without_compiled_names(state_dict: Mapping[str, Any] | None) -> dict[str, Any]:
    """Without the `_orig_mod.` of compiled modules, as torch wants it."""
    return renamed(state_dict, lambda name: name.replace("_orig_mod.", ""))


def with_own_steps(state: Any) -> Any:
    """Undo that FSDP1 saved one `step` tensor for a whole unit."""
    if isinstance(state, dict):
        return {key: with_own_steps(value) for key, value in state.items()}
    return state.clone() if torch.is_tensor(state) and not state.dim() else state


def offload(value: Any) -> Any:
    """A nested state dict with its tensors on the CPU, sharded as they are."""
    if isinstance(value, Mapping):
        return {key: offload(item) for key, item in value.items()}
    return value.cpu() if isinstance(value, torch.Tensor) else value


def parameter_names(model: nn.Module) -> dict[nn.Parameter, str]:
    """The parameters' names, without those of activation checkpointing."""
    reshard_all(model)  # an evaluation leaves other parameters in the model than those that the optimizer has
    return {param: name.replace("_checkpoint_wrapped_module.", "") for name, param in model.named_parameters()}


def param_groups(model: nn.Module, optim: torch.optim.Optimizer | None) -> list[dict[str, Any]]:
    """An optimizer's groups; without one, one group of all parameters."""
    return optim.param_groups if optim is not None else [{"params": list(model.parameters())}]


def rekey_optim_state_dict(
    optim_state_dict: Mapping[str, Any],
    optim_state_key_type: OptimStateKeyType,
    model: nn.Module,
    optim: torch.optim.Optimizer | None = None,
) -> dict[str, Any]:
    """FSDP1's `FSDP.rekey_optim_state_dict`: from names to ids, or back."""
    names = parameter_names(model)
    keys = [names[param] for group in param_groups(model, optim) for param in group["params"]]
    ids = {name: index for index, name in enumerate(keys)}
    by_name = optim_state_key_type is OptimStateKeyType.PARAM_NAME

    def rekey(key: Any) -> Any:
        if isinstance(key, int):
            return keys[key] if by_name else key
        return key if by_name else ids[key]

    return {
        "state": {rekey(key): values for key, values in optim_state_dict["state"].items()},
        "param_groups": [
            {**group, "params": sorted(map(rekey, group["params"]))} for group in optim_state_dict["param_groups"]
        ],
    }
