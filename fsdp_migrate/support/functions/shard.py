"""`FSDP(model, ...)` on FSDP2."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffload,
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import CustomPolicy

from .meshes import resolve_device, resolve_mesh
from .precision import cast_module_buffers, unit_mp_policy
from .states import broadcast_module_states, make_contiguous, materialize
from .units import is_container, resolve_ignored, unit_modules, wrap_targets

logger = logging.getLogger(__name__)

# FSDP1 arguments that never changed what was computed.
SPEED_ONLY = frozenset({"backward_prefetch", "forward_prefetch", "limit_all_gathers", "use_orig_params"})

# The policy that a root gets should it turn out to be nested: see `cast_at_the_root_only`.
NESTED_MP_POLICIES: WeakKeyDictionary[nn.Module, MixedPrecisionPolicy] = WeakKeyDictionary()


def cast_at_the_root_only(root: nn.Module) -> None:
    """Take the root's input cast from the units that were sharded by hand before the model around them.

    FSDP1 found out in the first forward which unit is the root; FSDP2 is told by each unit's policy, up front.
    """
    for unit in root.modules():
        if unit is not root and unit in NESTED_MP_POLICIES and isinstance(unit, FSDPModule):
            unit._get_fsdp_state()._mp_policy = NESTED_MP_POLICIES.pop(unit)


@contextmanager
def ignored_taken_out(
    module: nn.Module, modules: Collection[nn.Module], params: Collection[nn.Parameter]
) -> Generator[None, None, None]:
    """Hide what stays as it is: `ignored_params` of `fully_shard` came with torch 2.7, and buffers move even so."""
    taken: list[tuple[dict[str, Any], str, Any]] = []
    for owner in module.modules():
        taken += [(owner._parameters, name, param) for name, param in owner._parameters.items() if param in params]
        if owner in modules:
            taken += [(owner._buffers, name, buffer) for name, buffer in owner._buffers.items()]
    for states, name, _ in taken:
        states[name] = None
    try:
        yield
    finally:
        for states, name, tensor in taken:
            states[name] = tensor


def shard_unit(
    unit: nn.Module,
    device: torch.device,
    mesh: DeviceMesh,
    sharding_strategy: ShardingStrategy | None = None,
    cpu_offload: CPUOffload | None = None,
    mixed_precision: MixedPrecision | None = None,
    output_dtype: torch.dtype | None = None,
    is_root: bool = False,
    ignored_modules: Collection[nn.Module] = (),
    ignored_params: Collection[nn.Parameter] = (),
    param_init_fn: Callable[[nn.Module], None] | None = None,
    sync_module_states: bool = False,
) -> None:
    """Shard one unit whose nested units are sharded: one unit at a time is whole in memory, as in FSDP1."""
    materialize(unit, device, param_init_fn, ignored_modules)
    if sync_module_states:
        for dim in range(mesh.ndim):  # across nodes first, so that each node then starts from the right values
            broadcast_module_states(unit, mesh.get_group(dim), device, ignored_params)
    kwargs: dict[str, Any] = {}
    if sharding_strategy is not None and sharding_strategy.name in ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2"):
        kwargs["reshard_after_forward"] = False  # left out, it frees every unit but the root, as FULL_SHARD did
    if cpu_offload is not None and cpu_offload.offload_params:
        kwargs["offload_policy"] = CPUOffloadPolicy(pin_memory=mesh.device_type != "cpu")
    if mixed_precision is not None:
        kwargs["mp_policy"] = unit_mp_policy(mixed_precision, is_root, output_dtype)
    own = [module for module in unit_modules(unit) if module not in ignored_modules]
    make_contiguous(own)
    if not is_container(unit):  # without a forward it has nothing to gather, and `fully_shard` refuses it
        if ignored_modules or ignored_params:
            with ignored_taken_out(unit, ignored_modules, ignored_params):
                fully_shard(unit, mesh=mesh, **kwargs)
        else:
            fully_shard(unit, mesh=mesh, **kwargs)
    if mixed_precision is not None and mixed_precision.buffer_dtype is not None:
        cast_module_buffers(own, mixed_precision.buffer_dtype)


def shard_customised(
    unit: nn.Module, own: dict[str, Any], device: torch.device, mesh: DeviceMesh, settings: dict[str, Any]
) -> None:
    """Shard a unit that a `CustomPolicy` gave arguments of its own."""
    settings = settings | {key: own[key] for key in own.keys() - SPEED_ONLY}
    group = settings.pop("process_group", None)
    given = settings.pop("device_mesh", None if group is not None else mesh)
    shard_unit(unit, device, resolve_mesh(device.type, settings["sharding_strategy"], group, given), **settings)


def shard_model(
    module: nn.Module,
    process_group: dist.ProcessGroup | tuple[dist.ProcessGroup, dist.ProcessGroup] | None = None,
    sharding_strategy: ShardingStrategy | None = None,
    cpu_offload: CPUOffload | None = None,
    auto_wrap_policy: Any = None,
    backward_prefetch: object = None,
    mixed_precision: MixedPrecision | None = None,
    ignored_modules: Iterable[nn.Module] | None = None,
    param_init_fn: Callable[[nn.Module], None] | None = None,
    device_id: int | torch.device | None = None,
    sync_module_states: bool = False,
    forward_prefetch: bool = False,
    limit_all_gathers: bool = True,
    use_orig_params: bool = False,
    ignored_states: Iterable[nn.Parameter] | Iterable[nn.Module] | None = None,
    device_mesh: DeviceMesh | None = None,
) -> nn.Module:
    """`FSDP(module, ...)` on FSDP2: the same arguments, groups, casts and initial values.

    For arguments that only run time knows; where they are known, `fully_shard` on each unit and then on the model is
    all there is to it. Shards `module` in place and returns it.
    """
    is_hybrid = sharding_strategy is not None and sharding_strategy.name in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")
    if is_hybrid and auto_wrap_policy is None and process_group is None and device_mesh is None:
        raise ValueError(f"{sharding_strategy} without auto_wrap_policy needs a process_group or a device_mesh")
    skipped_modules: Collection[nn.Module] = ()
    skipped_params: Collection[nn.Parameter] = ()
    if ignored_modules is not None or ignored_states is not None:
        skipped_modules, skipped_params = resolve_ignored(ignored_modules, ignored_states)
    device = resolve_device(module, device_id)
    mesh = resolve_mesh(device.type, sharding_strategy, process_group, device_mesh)
    if auto_wrap_policy is not None:
        units = wrap_targets(module, auto_wrap_policy, mixed_precision, skipped_modules, skipped_params)
        logger.info("sharded units of %s: %d", type(module).__name__, len(units) + 1)
        if not units:
            warnings.warn("auto_wrap_policy picked no module: the whole model is one unit", stacklevel=2)
        for unit in units:
            precision = mixed_precision
            output_dtype = None
            if mixed_precision is not None and isinstance(unit, tuple(mixed_precision._module_classes_to_ignore)):
                # Classes that FSDP1 kept out of mixed precision: inputs are cast up, outputs back.
                precision = MixedPrecision(param_dtype=torch.float32, cast_forward_inputs=True)
                output_dtype = mixed_precision.param_dtype
            if isinstance(auto_wrap_policy, CustomPolicy) and units[unit]:
                settings = {
                    "sharding_strategy": sharding_strategy,
                    "cpu_offload": cpu_offload,
                    "mixed_precision": precision,
                    "output_dtype": output_dtype,
                    "ignored_modules": skipped_modules,
                    "ignored_params": skipped_params,
                    "param_init_fn": param_init_fn,
                    "sync_module_states": sync_module_states,
                }
                shard_customised(unit, units[unit], device, mesh, settings)
                continue
            shard_unit(
                unit,
                device,
                mesh,
                sharding_strategy,
                cpu_offload,
                precision,
                output_dtype,
                ignored_modules=skipped_modules,
                ignored_params=skipped_params,
                param_init_fn=param_init_fn,
                sync_module_states=sync_module_states,
            )
    shard_unit(
        module,
        device,
        mesh,
        sharding_strategy,
        cpu_offload,
        mixed_precision,
        is_root=True,
        ignored_modules=skipped_modules,
        ignored_params=skipped_params,
        param_init_fn=param_init_fn,
        sync_module_states=sync_module_states,
    )
    if auto_wrap_policy is None:
        cast_at_the_root_only(module)
    if mixed_precision is not None:
        NESTED_MP_POLICIES[module] = unit_mp_policy(mixed_precision)
    reduce_unused = getattr(module, "set_reduce_scatter_unused_params", None)  # torch >= 2.13
    if reduce_unused is not None:
        # FSDP1's flat gradient held zeros for parameters without gradient, so weight decay and momentum reached them,
        # and ranks could use different parameters.
        reduce_unused(True)
    return module


# What `enable_wrap` was given, while inside of it.
WRAP_CONTEXTS: list[dict[str, Any]] = []


@contextmanager
def enable_wrap(*, wrapper_cls: Callable[..., nn.Module], **wrapper_kwargs: Any) -> Generator[None, None, None]:
    """FSDP1's context: inside of it `wrap` calls `wrapper_cls`."""
    if WRAP_CONTEXTS:
        raise NotImplementedError("enable_wrap cannot be nested")
    WRAP_CONTEXTS.append({"wrapper_cls": wrapper_cls, **wrapper_kwargs})
    try:
        yield
    finally:
        WRAP_CONTEXTS.pop()


def wrap(module: nn.Module, **wrap_overrides: Any) -> nn.Module:
    """Wrap `module` when inside `enable_wrap`, else leave it alone: one model for both uses."""
    if not WRAP_CONTEXTS:
        return module
    kwargs = WRAP_CONTEXTS[-1] | wrap_overrides
    wrapper: Callable[..., nn.Module] = kwargs.pop("wrapper_cls")
    return wrapper(module, **kwargs)
