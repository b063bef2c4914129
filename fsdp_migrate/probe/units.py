"""The FSDP roots and units of the running program, FSDP1 and FSDP2 seen through one vocabulary.

Private names of torch used here (torch 2.6 to 2.13): `FullyShardedDataParallel._handle`, `FlatParameter._fqns`,
`._numels`, `._params`, `._shard_param_infos`, `FSDPState._fsdp_param_groups` (`_fsdp_param_group` before 2.9),
`FSDPParam._module_info`, `.sharded_param`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor

from fsdp_migrate.probe.names import clean, join


class Wrapped:
    """Every module that was given to FSDP1 or `fully_shard`, in the order in which that happened."""

    def __init__(self) -> None:
        self._modules: list[weakref.ref[nn.Module]] = []
        self._ids: set[int] = set()
        self._root_ids: set[int] = set()
        self._roots_of = 0
        self._numbered: list[weakref.ref[nn.Module]] = []
        """The roots by their numbers, also those that are gone."""

    def add(self, module: nn.Module) -> None:
        if all(known() is not module for known in self._modules):
            self._modules.append(weakref.ref(module))
            self._ids.add(id(module))

    def alive(self) -> list[nn.Module]:
        return [module for ref in self._modules if (module := ref()) is not None]

    def is_unit(self, module: nn.Module) -> bool:
        """Whether the module was wrapped itself. Asked at every forward of every module, hence the cache."""
        return id(module) in self._ids

    def is_root(self, module: nn.Module) -> bool:
        """Asked at every forward of every module, hence the cache."""
        if self._roots_of != len(self._modules):
            self._roots_of, self._root_ids = len(self._modules), {id(root) for root in self.roots()}
        return id(module) in self._root_ids

    def roots(self) -> list[nn.Module]:
        """The wrapped modules that no other wrapped module contains."""
        modules = self.alive()
        inside = {id(child) for module in modules for child in module.modules() if child is not module}
        return [module for module in modules if id(module) not in inside]

    def numbered(self) -> list[tuple[int, nn.Module]]:
        """The roots with their numbers, which they keep: one that takes the place of another, such as a model that is
        built again and restored, must not be taken for it."""
        roots = self.roots()
        known = {id(ref()) for ref in self._numbered}
        self._numbered += [weakref.ref(root) for root in roots if id(root) not in known]
        numbers = {id(root): number for number, ref in enumerate(self._numbered) if (root := ref()) is not None}
        return [(numbers[id(root)], root) for root in roots]


@dataclass(frozen=True, slots=True)
class Unit:
    """One shard group: the parameters that are gathered and reduced together.

    `padded_numel` is what one gather moves, `reduced_numel` what one reduction moves: FSDP1 reduces the flat gradient
    of the whole unit, FSDP2 only the parameters that have a gradient.
    """

    root: int
    fqn: str
    api: str
    params: tuple[str, ...]
    numel: int
    padded_numel: int
    reduced_numel: int
    storage_dtype: str
    param_dtype: str
    reduce_dtype: str
    strategy: str
    shard_world: int


def fsdp1_handles(root: nn.Module) -> Iterator[tuple[str, Any]]:
    """(cleaned module name, FlatParamHandle) of each FSDP1 unit with parameters under `root`."""
    for name, module in root.named_modules():
        if isinstance(module, FullyShardedDataParallel) and getattr(module, "_handle", None) is not None:
            yield clean(name), module._handle


def fsdp2_groups(root: nn.Module) -> Iterator[tuple[str, Any]]:
    """(cleaned module name, FSDPParamGroup) of each FSDP2 unit under `root`.

    isinstance, and not hasattr: an activation-checkpoint wrapper forwards every attribute of what it wraps.
    """
    seen: set[int] = set()
    for name, module in root.named_modules():
        if not isinstance(module, FSDPModule):
            continue
        state = module._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:
            groups = [group] if (group := state._fsdp_param_group) is not None else []
        for group in groups:
            if id(group) not in seen:
                seen.add(id(group))
                yield clean(name), group


def module_names(root: nn.Module) -> dict[int, list[str]]:
    """Cleaned names of each module under `root`, by id: T5's embedding is a module of three names."""
    names: dict[int, list[str]] = {}
    for name, module in root.named_modules(remove_duplicate=False):
        names.setdefault(id(module), []).append(clean(name))
    return names


def fsdp2_names(fsdp_param: Any, names: dict[int, list[str]]) -> tuple[str, ...]:
    """Every name of one FSDP2 parameter, the shared ones too, sorted."""
    info = fsdp_param._module_info
    places = [(info.module, info.param_name), *zip(info.shared_modules, info.shared_param_names, strict=True)]
    return tuple(sorted(join(prefix, name) for module, name in places for prefix in names.get(id(module), ["?"])))


def fsdp2_sharded(fsdp_param: Any) -> DTensor:
    """The sharded parameter, whether the module holds it now or its unsharded twin.

    After `to_empty()` or `load_state_dict(assign=True)` the module has a newer one than the state has, until the first
    forward; so the module's is preferred.
    """
    info = fsdp_param._module_info
    current = getattr(info.module, info.param_name, None)
    if isinstance(current, DTensor) and current.placements == fsdp_param.sharded_param.placements:
        return current
    sharded = fsdp_param.sharded_param
    assert isinstance(sharded, DTensor)
    return sharded


def fsdp1_names(prefix: str, flat_param: Any) -> list[tuple[str, ...]]:
    """Every name of each parameter of a flat parameter, the shared ones too."""
    names = [[join(prefix, clean(fqn))] for fqn in flat_param._fqns]
    places = {(info.module_name, info.param_name): i for i, info in enumerate(flat_param._param_infos)}
    for shared in flat_param._shared_param_infos:
        primary = places.get((shared.prim_module_name, shared.prim_param_name))
        if primary is not None:
            names[primary].append(join(prefix, join(clean(shared.module_name), shared.param_name)))
    return [tuple(sorted(group)) for group in names]


def units(roots: list[tuple[int, nn.Module]]) -> list[Unit]:
    """All shard groups of the program, in the order of the modules."""
    found: list[Unit] = []
    for number, root in roots:
        found += [_fsdp1_unit(number, name, handle) for name, handle in fsdp1_handles(root)]
        names = module_names(root)
        found += [_fsdp2_unit(number, name, group, names) for name, group in fsdp2_groups(root)]
    return found


def _fsdp1_unit(root: int, name: str, handle: Any) -> Unit:
    flat = handle.flat_param
    shard_world = handle.process_group.size() if handle.uses_sharded_strategy else 1
    padded = int(flat._sharded_size.numel()) * shard_world if hasattr(flat, "_sharded_size") else flat.numel()
    return Unit(
        root=root,
        fqn=name,
        api="FSDP1",
        params=tuple(sorted(names[0] for names in fsdp1_names(name, flat))),
        numel=int(sum(flat._numels)),
        padded_numel=padded,
        reduced_numel=padded if flat.requires_grad else 0,
        storage_dtype=_dtype(getattr(flat, "_local_shard", flat).dtype),
        param_dtype=_dtype(handle._fwd_bwd_param_dtype),
        reduce_dtype=_dtype(handle._reduce_dtype),
        strategy=handle._sharding_strategy.name,
        shard_world=shard_world,
    )


def _fsdp2_unit(root: int, name: str, group: Any, names: dict[int, list[str]]) -> Unit:
    sharded = [fsdp2_sharded(fsdp_param) for fsdp_param in group.fsdp_params]
    padded = [fsdp_param.padded_sharded_param_size.numel() for fsdp_param in group.fsdp_params]
    storage = {tensor.dtype for tensor in sharded}
    compute = {group.mp_policy.param_dtype or dtype for dtype in storage}
    reduce = {group.mp_policy.reduce_dtype or dtype for dtype in compute}
    shard_world = max((s.device_mesh.size(s.device_mesh.ndim - 1) for s in sharded), default=1)
    return Unit(
        root=root,
        fqn=name,
        api="FSDP2",
        params=tuple(sorted(fsdp2_names(fsdp_param, names)[0] for fsdp_param in group.fsdp_params)),
        numel=sum(s.numel() for s in sharded),
        padded_numel=sum(padded) * shard_world,
        reduced_numel=sum(size for size, s in zip(padded, sharded, strict=True) if s.grad is not None) * shard_world,
        storage_dtype=_dtypes(storage),
        param_dtype=_dtypes(compute),
        reduce_dtype=_dtypes(reduce),
        strategy="reshard" if group._reshard_after_forward else "keep",
        shard_world=shard_world,
    )


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtypes(dtypes: set[torch.dtype]) -> str:
    return "+".join(sorted(_dtype(dtype) for dtype in dtypes))
