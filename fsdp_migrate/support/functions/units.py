"""Which modules become units, and which modules make up one unit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecision
from torch.distributed.fsdp.wrap import CustomPolicy, _or_policy, transformer_auto_wrap_policy

CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


def is_container(module: nn.Module) -> bool:
    """Whether a module only holds others: FSDP1 gave it an empty unit, `fully_shard` refuses it.

    One that was given a forward (`experts.forward = ...`) is not: left without a unit it would train unsharded, so
    that `fully_shard` is to raise.
    """
    has_forward = type(module).forward is not nn.Module.forward or "forward" in vars(module)
    return isinstance(module, CONTAINERS) and not has_forward


def post_order(module: nn.Module) -> Iterator[nn.Module]:
    """Children before parents, each module once. `reversed(modules())` is not that when modules are shared."""
    seen = {module}

    def visit(parent: nn.Module) -> Iterator[nn.Module]:
        for child in parent.children():
            if child not in seen:
                seen.add(child)
                yield from visit(child)
        yield parent

    return visit(module)


def unit_modules(unit: nn.Module) -> list[nn.Module]:
    """The modules of one unit: its subtree without nested units, parents first, as FSDP1 visited them."""
    modules = [unit]
    for module in modules:  # grows
        modules += [child for child in module.children() if not isinstance(child, FSDPModule)]
    return list(dict.fromkeys(modules))


def units_by_size(
    model: nn.Module,
    min_num_params: float,
    whole: Any = (),
    ignored: Collection[nn.Module] = (),
    ignored_params: Collection[nn.Parameter] = (),
) -> list[nn.Module]:
    """The submodules with `min_num_params` parameters outside of smaller units, children first.

    Inside of the `whole` classes there are none.
    """
    units: list[nn.Module] = []

    def visit(module: nn.Module) -> int:  # returns how many parameters of `module` lie in units
        if isinstance(module, whole):  # in the unit around it: it reads the weights of its layers itself
            return 0
        total = sum(param.numel() for param in module.parameters() if param not in ignored_params)
        own = total - sum(visit(child) for child in module.children() if child not in ignored)
        if own < min_num_params or isinstance(module, (nn.ModuleList, nn.ModuleDict)):
            return total - own
        units.append(module)
        return total

    visit(model)
    return [unit for unit in units if unit is not model]


def policy_units(
    model: nn.Module,
    policy: Callable[..., bool],
    look_inside: bool = False,
    kept: Any = (),
    ignored: Collection[nn.Module] = (),
    ignored_params: Collection[nn.Parameter] = (),
) -> list[nn.Module]:
    """The submodules that an FSDP1 policy picks, children first. Those of the `kept` classes are units anyway."""
    units: list[nn.Module] = []

    def visit(module: nn.Module) -> int:  # how many parameters lie in units
        total = sum(param.numel() for param in module.parameters() if param not in ignored_params)
        if not look_inside and not policy(module=module, recurse=True, nonwrapped_numel=total):
            return 0
        own = total - sum(visit(child) for child in module.children() if child not in ignored)
        if not (isinstance(module, kept) or policy(module=module, recurse=False, nonwrapped_numel=own)):
            return total - own
        if type(module).forward is not nn.Module.forward:  # not for containers
            units.append(module)
        return total

    visit(model)
    return [unit for unit in dict.fromkeys(units) if unit is not model]


def policy_targets(
    module: nn.Module,
    policy: Callable[..., bool],
    ignored_modules: Collection[nn.Module] = (),
    ignored_params: Collection[nn.Parameter] = (),
) -> list[nn.Module]:
    """The modules a callable FSDP1 policy picks.

    FSDP1 asked top-down whether to look inside, and bottom-up whether to wrap what is left. A module it may not look
    inside is not offered at all, so its parameters belong to the unit around it.
    """
    targets = []

    def wrapped_numel(candidate: nn.Module) -> int:
        total = sum(p.numel() for p in candidate.parameters() if p not in ignored_params)
        if not policy(module=candidate, recurse=True, nonwrapped_numel=total):
            return 0
        done = sum(wrapped_numel(child) for child in candidate.children() if child not in ignored_modules)
        if candidate is module or not policy(module=candidate, recurse=False, nonwrapped_numel=total - done):
            return done
        targets.append(candidate)
        return total

    wrapped_numel(module)
    return targets


def wrap_targets(
    module: nn.Module,
    policy: Any,
    mixed_precision: MixedPrecision | None = None,
    ignored_modules: Collection[nn.Module] = (),
    ignored_params: Collection[nn.Parameter] = (),
) -> dict[nn.Module, dict[str, Any]]:
    """The units that an FSDP1 `auto_wrap_policy` makes below `module`, children first, with their own arguments.

    `fully_shard` has no policies: it is called on each unit, and then on `module` itself.
    """
    if any(isinstance(m, FSDPModule) for m in module.modules()):
        raise ValueError("auto_wrap_policy needs a model without sharded modules: shard by policy or by hand")
    # With mixed precision, FSDP1 also made units of the classes that stay in float32, and then looked inside every
    # module, even where a size-based policy would not.
    kept = tuple(mixed_precision._module_classes_to_ignore) if mixed_precision is not None else ()
    if hasattr(policy, "_run_policy"):
        units = policy._run_policy(module, set(ignored_modules), {})
        if not isinstance(policy, CustomPolicy) and any(units.values()):
            raise NotImplementedError(f"{type(policy).__name__} gives units arguments of their own: call fully_shard")
        for candidate in module.modules():
            if isinstance(candidate, kept) and candidate not in ignored_modules:
                units.setdefault(candidate, {})
    else:
        if mixed_precision is not None:
            by_class = partial(transformer_auto_wrap_policy, transformer_layer_cls=set(kept))
            policy = partial(_or_policy, policies=[policy, by_class])
        units = {unit: {} for unit in policy_targets(module, policy, ignored_modules, ignored_params)}
    return {
        unit: units[unit]
        for unit in post_order(module)
        if unit in units and unit is not module and not is_container(unit)
    }


def resolve_ignored(
    ignored_modules: Iterable[nn.Module] | None,
    ignored_states: Iterable[nn.Parameter] | Iterable[nn.Module] | None,
) -> tuple[set[nn.Module], set[nn.Parameter]]:
    """The modules and parameters that FSDP1 left alone. `fully_shard` knows only parameters."""
    if ignored_modules is not None and ignored_states is not None:
        raise ValueError("pass ignored_states or ignored_modules, not both")
    states: list[torch.Tensor | nn.Module] = [*(ignored_modules or ()), *(ignored_states or ())]
    modules = {child for state in states if isinstance(state, nn.Module) for child in state.modules()}
    params = {state for state in states if isinstance(state, nn.Parameter)}
    return modules, params.union(*(module.parameters(recurse=False) for module in modules))
