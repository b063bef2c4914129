"""An optimizer's state dict, keyed by parameter names."""

from __future__ import annotations

from collections.abc import Mapping
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
from torch.distributed.tensor import DTensor, distribute_tensor

from .summon import full_tensor, is_first_rank
from .training import reshard_all


def parameter_names(model: nn.Module) -> dict[nn.Parameter, str]:
    """The names that checkpoints have for the parameters, whatever activation checkpointing puts in between."""
    reshard_all(model)  # an evaluation leaves other parameters in the model than those that the optimizer has
    return {param: name.replace("_checkpoint_wrapped_module.", "") for name, param in model.named_parameters()}


def param_groups(model: nn.Module, optim: torch.optim.Optimizer | None) -> list[dict[str, Any]]:
    """An optimizer's groups; without one, those of an optimizer over all parameters, which FSDP1 took for granted."""
    return optim.param_groups if optim is not None else [{"params": list(model.parameters())}]


def named_optim_state(model: nn.Module, optim: torch.optim.Optimizer) -> dict[str, Any]:
    """An optimizer's state with parameter names for keys.

    Torch's `get_optimizer_state_dict` makes an optimizer that has not stepped yet take a step, and that one counts.
    """
    names = parameter_names(model)
    keys = [names[param] for group in optim.param_groups for param in group["params"]]
    own = optim.state_dict()
    groups = [{**group, "params": [keys[key] for key in group["params"]]} for group in own["param_groups"]]
    return {"state": {keys[key]: values for key, values in own["state"].items()}, "param_groups": groups}


def full_optim_state_dict(
    model: nn.Module, optim: torch.optim.Optimizer, rank0_only: bool = True, offload_to_cpu: bool = True
) -> dict[str, Any]:
    """FSDP1's full optimizer state dict, keyed by parameter name. Every rank has to call this.

    With `rank0_only`, all but the first of the model's ranks get an empty dict.
    """
    is_kept, device = not rank0_only or is_first_rank(model), "cpu" if offload_to_cpu else None
    named, state = named_optim_state(model, optim), {}
    for name, values in named["state"].items():
        whole = {key: full_tensor(value) for key, value in values.items()}
        if is_kept:  # copies, since gathering over one rank gives the tensor itself
            tensors = {key: value.to(device, copy=True) for key, value in whole.items() if torch.is_tensor(value)}
            state[name] = {**whole, **tensors}
    return {**named, "state": state} if is_kept else {}


def read_optimizer_state(
    model: nn.Module, optim: torch.optim.Optimizer, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """Torch's `get_optimizer_state_dict`, which makes an optimizer that has not stepped yet take a step that counts."""
    has_stepped = bool(optim.state)
    state_dict = get_optimizer_state_dict(model, optim, options=options)
    if not has_stepped:
        optim.state.clear()
        if state_dict:
            state_dict["state"] = {}
    return state_dict


def load_optimizer_state(
    model: nn.Module, optim: torch.optim.Optimizer, optim_state_dict: Mapping[str, Any] | None
) -> None:
    """Load a full optimizer state that only the first rank needs to have. Every rank has to call this."""
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
    set_optimizer_state_dict(model, optim, optim_state_dict or {}, options=options)  # type: ignore[arg-type]
    # Torch leaves out on the other ranks what their optimizers do not have, such as a scheduler's `initial_lr`.
    settings = [[{**group, "params": None} for group in optim.param_groups]]
    dist.broadcast_object_list(settings, src=0)
    for group, saved in zip(optim.param_groups, settings[0], strict=True):
        group.update({**saved, "params": group["params"]})


def offload(value: Any) -> Any:
    """A nested state dict with its tensors on the CPU, sharded as they are."""
    if isinstance(value, Mapping):
        return {key: offload(item) for key, item in value.items()}
    return value.cpu() if isinstance(value, torch.Tensor) else value


def sharded_optim_state_dict(
    model: nn.Module, optim: torch.optim.Optimizer, offload_to_cpu: bool = True
) -> dict[str, Any]:
    """FSDP1's sharded optimizer state dict, with DTensors in it, to be saved by `torch.distributed.checkpoint`."""
    named = named_optim_state(model, optim)
    return offload(named) if offload_to_cpu else named


def outline(value: Any) -> Any:
    """A state dict for ranks that have none: shapes of plain tensors, None for what each rank has its own part of."""
    if isinstance(value, Mapping):
        return {key: outline(item) for key, item in value.items()}
    if isinstance(value, DTensor):
        return None
    return value.to("meta") if isinstance(value, torch.Tensor) and value.dim() else value


def shard_like(param: torch.Tensor, value: Any, outlined: Any) -> Any:
    """This rank's part of a parameter, or of one item of its state. The first rank has the whole of it."""
    if outlined is None or not isinstance(outlined, torch.Tensor):
        return value if outlined is None else outlined
    if not outlined.dim():
        # FSDP1 without use_orig_params saved one `step` for a unit, and each of its parameters would advance it.
        return outlined.clone()
    device = param.device_mesh.device_type if isinstance(param, DTensor) else param.device
    full = torch.empty_like(outlined, device=device) if value is None else value.to(device)
    if isinstance(param, DTensor) and full.shape == param.shape:
        return distribute_tensor(full, param.device_mesh, param.placements).to(param.device)
    dist.broadcast(full, src=0)
    return full


def optim_state_dict_to_load(
    model: nn.Module,
    optim: torch.optim.Optimizer | None,
    optim_state_dict: Mapping[str, Any] | None,
    load_directly: bool = False,
) -> dict[str, Any]:
    """FSDP1's `FSDP.optim_state_dict_to_load`: from a state dict keyed by parameter name to one for `load_state_dict`.

    Only the first rank needs to have a full one. Every rank has to call this.
    """
    saved = [outline(optim_state_dict)]
    dist.broadcast_object_list(saved, src=0)
    outlined, own = saved[0], (optim_state_dict or {}).get("state", {})
    if not outlined:
        raise ValueError("the first rank has no optimizer state to load")
    if any(isinstance(name, int) for name in outlined["state"]):
        raise ValueError("this optimizer state has parameter ids for keys: re-save it with FSDP.optim_state_dict first")
    names = parameter_names(model)
    result: dict[str, Any] = {"state": {}, "param_groups": []}
    first = 0
    for group in param_groups(model, optim):
        keys = [names[param] for param in group["params"]]
        same = [other for other in outlined["param_groups"] if set(other["params"]) == set(keys)]
        if not same:
            raise ValueError(f"the checkpoint has no parameter group of {keys}")
        result["param_groups"].append({**same[0], "params": list(range(first, first + len(keys)))})
        for index, (name, param) in enumerate(zip(keys, group["params"], strict=True), first):
            if name in outlined["state"]:
                items = outlined["state"][name].items()
                values = {key: shard_like(param, own.get(name, {}).get(key), item) for key, item in items}
                result["state"][index] = values
        first += len(keys)
    if load_directly and optim is not None:
        optim.load_state_dict(result)
    return result


def with_own_steps(state: Any) -> Any:
    """An optimizer's state dict in which no parameter shares its `step` with another.

    FSDP1 without use_orig_params saved one for a unit. Torch takes such numbers over as they are, and each parameter
    would advance the one of all.
    """
    if isinstance(state, Mapping):
        return {key: with_own_steps(value) for key, value in state.items()}
    return state.clone() if isinstance(state, torch.Tensor) and not state.dim() else state


def shard_full_optim_state_dict(
    full_optim_state_dict: Mapping[str, Any] | None, model: nn.Module, optim: torch.optim.Optimizer | None = None
) -> dict[str, Any]:
    """FSDP1's `FSDP.shard_full_optim_state_dict`. Every rank has to call this."""
    return optim_state_dict_to_load(model, optim, full_optim_state_dict)


def scatter_full_optim_state_dict(
    full_optim_state_dict: Mapping[str, Any] | None, model: nn.Module, optim: torch.optim.Optimizer | None = None
) -> dict[str, Any]:
    """FSDP1's `FSDP.scatter_full_optim_state_dict`: only the first rank has the state dict."""
    return optim_state_dict_to_load(model, optim, full_optim_state_dict)


def flatten_sharded_optim_state_dict(
    sharded_optim_state_dict: Mapping[str, Any], model: nn.Module, optim: torch.optim.Optimizer
) -> dict[str, Any]:
    """FSDP1's `FSDP.flatten_sharded_optim_state_dict`. There is nothing flat about it any more."""
    return optim_state_dict_to_load(model, optim, sharded_optim_state_dict)


def rekey_optim_state_dict(
    optim_state_dict: Mapping[str, Any],
    optim_state_key_type: OptimStateKeyType,
    model: nn.Module,
    optim: torch.optim.Optimizer | None = None,
) -> dict[str, Any]:
    """FSDP1's `FSDP.rekey_optim_state_dict`: from parameter names to ids of an unsharded model's optimizer, or back."""
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
