"""Checkpoints in FSDP1's formats."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint._nested_dict import unflatten_state_dict
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.storage import StorageReader
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, distribute_tensor

from .api import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    OptimStateDictConfig,
    OptimStateKeyType,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from .summon import full_tensor
from .training import reshard_all
from .units import FLAT_MODELS

# What `set_state_dict_type` set, by model.
STATE_DICT_SETTINGS: WeakKeyDictionary[nn.Module, StateDictSettings] = WeakKeyDictionary()


def gather(value: Any, offload_to_cpu: bool, rank0_only: bool) -> Any:
    """A nested state dict with every DTensor gathered, one after the other; nothing is kept where it is not wanted."""
    if isinstance(value, Mapping):
        return {key: gather(item, offload_to_cpu, rank0_only) for key, item in value.items()}
    if not isinstance(value, torch.Tensor):
        return value
    full = full_tensor(value)
    if rank0_only and dist.get_rank() != 0:
        return None
    # A copy, since gathering over one rank gives the parameter itself, and so do buffers.
    return full.to("cpu" if offload_to_cpu else full.device, copy=True)


def full_state_dict(model: nn.Module, offload_to_cpu: bool = False, rank0_only: bool = False) -> dict[str, Any]:
    """FSDP1's FULL_STATE_DICT: the keys and values of the unsharded model. Every rank has to call this.

    With `rank0_only`, the other ranks get an empty dict.
    """
    full: dict[str, Any] = gather(model.state_dict(), offload_to_cpu, rank0_only)
    return {} if rank0_only and dist.get_rank() != 0 else full


def parameter_names(model: nn.Module) -> dict[nn.Parameter, str]:
    """The names that checkpoints have for the parameters, whatever activation checkpointing puts in between."""
    reshard_all(model)  # an evaluation leaves other parameters in the model than those that the optimizer has
    return {param: name.replace("_checkpoint_wrapped_module.", "") for name, param in model.named_parameters()}


def param_groups(model: nn.Module, optim: torch.optim.Optimizer | None) -> list[dict[str, Any]]:
    """An optimizer's groups; without one, those of an optimizer over all parameters, which FSDP1 took for granted."""
    return optim.param_groups if optim is not None else [{"params": list(model.parameters())}]


def flat_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """One parameter's state as FSDP1 without use_orig_params ordered it: tensors, single numbers, then all else."""

    def rank(name: str) -> tuple[int, str]:
        value = state[name]
        return (2 if not isinstance(value, torch.Tensor) else int(not value.dim())), name

    return {name: state[name] for name in sorted(state, key=rank)}


def unit_numbers(model: nn.Module) -> dict[str, int]:
    """The unit that each parameter belongs to, by its name; none for what is not sharded."""
    units = [module for module in model.modules() if isinstance(module, FSDPModule)]
    numbers = {param: number for number, unit in enumerate(units) for param in unit.parameters()}
    return {
        name: numbers[param] if isinstance(param, DTensor) else -1 for param, name in parameter_names(model).items()
    }


def named_optim_state(model: nn.Module, optim: torch.optim.Optimizer, flat_order: bool = False) -> dict[str, Any]:
    """An optimizer's state with parameter names for keys, in FSDP1's order, which went by units.

    Torch's `get_optimizer_state_dict` makes an optimizer that has not stepped yet take a step, and that one counts.
    """
    flat_order = flat_order or any(module in FLAT_MODELS for module in model.modules())
    names = parameter_names(model)
    units = unit_numbers(model)
    keys = [names[param] for group in optim.param_groups for param in group["params"]]
    own = optim.state_dict()
    groups = [{**group, "params": [keys[key] for key in group["params"]]} for group in own["param_groups"]]
    state = {keys[key]: values for key, values in own["state"].items()}
    if flat_order:
        for group in groups:
            group["params"].sort(key=units.__getitem__)
        order = [name for group in groups for name in group["params"] if name in state]
        return {"state": {name: flat_state(state[name]) for name in order}, "param_groups": groups}
    first: dict[int, str] = {-1: ""}
    for name in sorted(state):
        first.setdefault(units[name], name)
    order = sorted(state, key=lambda name: (first[units[name]], name))
    return {"state": {name: state[name] for name in order}, "param_groups": groups}


def full_optim_state_dict(
    model: nn.Module,
    optim: torch.optim.Optimizer,
    rank0_only: bool = True,
    offload_to_cpu: bool = True,
    flat_order: bool = False,
) -> dict[str, Any]:
    """FSDP1's full optimizer state dict, keyed by parameter name. Every rank has to call this.

    With `rank0_only`, the other ranks get an empty dict. `flat_order` is that of FSDP1 without use_orig_params.
    """
    full: dict[str, Any] = gather(named_optim_state(model, optim, flat_order), offload_to_cpu, rank0_only)
    return {} if rank0_only and dist.get_rank() != 0 else full


def offload(value: Any) -> Any:
    """A nested state dict with its tensors on the CPU, sharded as they are."""
    if isinstance(value, Mapping):
        return {key: offload(item) for key, item in value.items()}
    return value.cpu() if isinstance(value, torch.Tensor) else value


def sharded_optim_state_dict(
    model: nn.Module, optim: torch.optim.Optimizer, offload_to_cpu: bool = True, flat_order: bool = False
) -> dict[str, Any]:
    """FSDP1's sharded optimizer state dict, with DTensors in it, to be saved by `torch.distributed.checkpoint`."""
    named = named_optim_state(model, optim, flat_order)
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


def load_full_state_dict(model: nn.Module, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
    """Load the state dict of the unsharded model. Only the first rank needs to have it.

    Torch's `set_model_state_dict` says that all keys matched when one is missing, and finds no `_orig_mod.` in names.
    """
    own, saved = model.state_dict(), [outline(state_dict)]
    dist.broadcast_object_list(saved, src=0)
    sharded = {
        key: shard_like(own[key], state_dict.get(key), item) if key in own else item for key, item in saved[0].items()
    }
    return model.load_state_dict(sharded, strict=strict)


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


def read_sharded(
    reader: StorageReader, params: Mapping[str, Any], first: str | None = None, planner: LoadPlanner | None = None
) -> dict[str, Any]:
    """What a checkpoint holds, or the part of it under its `first` key: sharded where a parameter of this name is."""
    metadata = reader.read_metadata()
    state: dict[str, Any] = {}
    for key, saved in metadata.state_dict_metadata.items():
        path = metadata.planner_data[key]
        if first is not None and path[0] != first:
            continue
        if not isinstance(saved, TensorStorageMetadata):
            state[key] = None
            continue
        param = next((params[name] for name in path if name in params), None)
        if isinstance(param, torch.Tensor) and param.shape == saved.size:
            state[key] = torch.empty_like(param, dtype=saved.properties.dtype)
        else:
            state[key] = torch.empty(saved.size, dtype=saved.properties.dtype)
    load(state, storage_reader=reader, planner=planner)
    return unflatten_state_dict(state, metadata.planner_data)


def load_sharded_optim_state_dict(
    model_state_dict: Mapping[str, Any],
    optimizer_key: str,
    storage_reader: StorageReader,
    planner: LoadPlanner | None = None,
) -> dict[str, Any]:
    """Torch's `load_sharded_optimizer_state_dict`, with each tensor sharded as its parameter is."""
    return read_sharded(storage_reader, model_state_dict, optimizer_key, planner)


def load_dcp(path: str | PathLike[str], model: nn.Module) -> dict[str, Any]:
    """Read a checkpoint of `torch.distributed.checkpoint` as it was saved. Every rank has to call this."""
    return read_sharded(FileSystemReader(path), model.state_dict())


def get_state_dict_type(model: nn.Module) -> StateDictSettings:
    """The kind of checkpoint that was set for a model; FULL_STATE_DICT to begin with."""
    default = StateDictSettings(StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig())
    return STATE_DICT_SETTINGS.get(model, default)


def set_state_dict_type(
    model: nn.Module,
    state_dict_type: StateDictType,
    state_dict_config: StateDictConfig | None = None,
    optim_state_dict_config: OptimStateDictConfig | None = None,
) -> StateDictSettings:
    """FSDP1's `FSDP.set_state_dict_type`, for `model_state_dict` and its like. Returns the settings so far."""
    if state_dict_type is StateDictType.LOCAL_STATE_DICT:
        raise NotImplementedError(
            "FSDP2 has no flat parameters to save as LOCAL_STATE_DICT: use SHARDED_STATE_DICT, and convert old "
            "checkpoints with an FSDP1 script that loads LOCAL and saves SHARDED"
        )
    before = get_state_dict_type(model)
    full = state_dict_type is StateDictType.FULL_STATE_DICT
    STATE_DICT_SETTINGS[model] = StateDictSettings(
        state_dict_type,
        state_dict_config or (FullStateDictConfig() if full else ShardedStateDictConfig()),
        optim_state_dict_config or (FullOptimStateDictConfig() if full else ShardedOptimStateDictConfig()),
    )
    return before


@contextmanager
def state_dict_type(
    model: nn.Module,
    state_dict_type: StateDictType,
    state_dict_config: StateDictConfig | None = None,
    optim_state_dict_config: OptimStateDictConfig | None = None,
) -> Generator[None, None, None]:
    """FSDP1's `FSDP.state_dict_type`, for `model_state_dict` and its like: `model.state_dict()` does not see it."""
    before = set_state_dict_type(model, state_dict_type, state_dict_config, optim_state_dict_config)
    try:
        yield
    finally:
        STATE_DICT_SETTINGS[model] = before


def is_full(model: nn.Module) -> bool:
    """Whether checkpoints of a model are gathered ones."""
    return get_state_dict_type(model).state_dict_type is StateDictType.FULL_STATE_DICT


def model_state_dict(model: nn.Module) -> dict[str, Any]:
    """`model.state_dict()` of an FSDP1 model, in the kind that was set for it. Every rank has to call this."""
    if not any(isinstance(module, FSDPModule) for module in model.modules()):
        return model.state_dict()  # DDP, or not distributed at all
    config = get_state_dict_type(model).state_dict_config
    if is_full(model):
        return full_state_dict(model, config.offload_to_cpu, getattr(config, "rank0_only", False))
    return offload(model.state_dict()) if config.offload_to_cpu else model.state_dict()


def load_model_state_dict(model: nn.Module, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
    """`model.load_state_dict(...)` of an FSDP1 model, in the kind that was set for it. Every rank has to call this."""
    if is_full(model) and any(isinstance(module, FSDPModule) for module in model.modules()):
        return load_full_state_dict(model, state_dict, strict)
    return model.load_state_dict(state_dict, strict=strict)  # sharded, or no FSDP model at all


def optim_state_dict(model: nn.Module, optim: torch.optim.Optimizer, flat_order: bool = False) -> dict[str, Any]:
    """FSDP1's `FSDP.optim_state_dict`, in the kind that was set for the model. Every rank has to call this."""
    config = get_state_dict_type(model).optim_state_dict_config
    if is_full(model):
        rank0_only = getattr(config, "rank0_only", False)
        return full_optim_state_dict(model, optim, rank0_only, config.offload_to_cpu, flat_order)
    return sharded_optim_state_dict(model, optim, config.offload_to_cpu, flat_order)
