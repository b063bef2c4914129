"""The copies of FSDP1's vocabulary against FSDP1 itself."""

from __future__ import annotations

import inspect
import random
import sys
from functools import partial
from types import ModuleType
from typing import Any

import pytest

from fsdp_migrate.support import available, compose, everything

torch = pytest.importorskip("torch")
fsdp1 = pytest.importorskip("torch.distributed.fsdp")
fsdp1_wrap = pytest.importorskip("torch.distributed.fsdp.wrap")

nn = pytest.importorskip("torch.nn")


@pytest.fixture(scope="module")
def support() -> ModuleType:
    module = ModuleType("fsdp2_support")
    sys.modules["fsdp2_support"] = module  # where dataclasses look up their annotations
    exec(compose(everything(available())), module.__dict__)
    return module


def test_shard_model_has_the_parameters_of_the_constructor(support: ModuleType) -> None:
    old = inspect.signature(fsdp1.FullyShardedDataParallel.__init__).parameters
    new = inspect.signature(support.shard_model).parameters
    assert list(new) == [name for name in old if name != "self"]
    changed = {name for name in new if new[name].default != old[name].default}
    assert changed == {"backward_prefetch"}, "has no effect, and needs no enum"


def test_summon_full_params_has_the_parameters_of_the_method(support: ModuleType) -> None:
    old = inspect.signature(fsdp1.FullyShardedDataParallel.summon_full_params).parameters
    new = inspect.signature(support.summon_full_params).parameters
    assert [(n, p.default) for n, p in new.items()] == [(n, p.default) for n, p in old.items()]


def random_model(numbers: random.Random, depth: int = 3) -> nn.Module:
    """A tree of layers, containers and sequences."""
    if depth == 0 or numbers.random() < 0.25:
        return nn.Linear(numbers.randint(1, 9), numbers.randint(1, 9))
    children = [random_model(numbers, depth - 1) for _ in range(numbers.randint(1, 3))]
    kind = numbers.choice(["sequential", "list", "dict", "transformer"])
    if kind == "list":
        return nn.Sequential(nn.ModuleList(children), nn.BatchNorm1d(2))
    if kind == "dict":
        return nn.Sequential(nn.ModuleDict({str(i): child for i, child in enumerate(children)}))
    if kind == "transformer":
        return nn.Sequential(nn.MultiheadAttention(4, 2), *children)
    return nn.Sequential(*children)


def picked_by_fsdp1(model: nn.Module, policy: Any, ignored: set[nn.Module], params: set[nn.Parameter]) -> list[str]:
    """The units of FSDP1's own walk, without the containers, which have nothing of their own."""
    names = {module: name for name, module in model.named_modules()}
    picked = []

    def wrap(module: nn.Module) -> nn.Module:
        if not isinstance(module, (nn.ModuleList, nn.ModuleDict)):
            picked.append(names[module])
        return module

    if hasattr(policy, "_run_policy"):
        targets = {module: {} for module in policy._run_policy(model, ignored, {})}
        fsdp1_wrap._post_order_apply(model, fsdp1_wrap._construct_wrap_fn(model, targets, wrap))
    else:
        fsdp1_wrap._recursive_wrap(model, policy, wrap, ignored, params, only_wrap_children=True)
    return picked


@pytest.mark.parametrize("seed", range(40))
def test_units_are_those_of_fsdp1(seed: int, support: ModuleType) -> None:
    numbers = random.Random(seed)
    model = nn.Sequential(random_model(numbers), random_model(numbers))
    ignored_roots = numbers.sample(list(model.modules())[1:], numbers.randint(0, 1))
    ignored, params = support.resolve_ignored(ignored_roots, None)
    numel = numbers.choice([1, 10, 40, 100])

    def accepts(module: nn.Module) -> bool:
        return len(list(module.children())) == 2

    v = fsdp1_wrap
    by_size = partial(v.size_based_auto_wrap_policy, min_num_params=numel)
    by_name = partial(v.lambda_auto_wrap_policy, lambda_fn=accepts)
    policies = [
        by_size,
        by_name,
        partial(by_size, force_leaf_modules={nn.Sequential}),
        partial(by_size, exclude_wrap_modules={nn.Linear}),
        partial(v.transformer_auto_wrap_policy, transformer_layer_cls={nn.Linear, nn.MultiheadAttention}),
        partial(v._module_wrap_policy, module_classes={nn.Linear}),
        partial(v._or_policy, policies=[by_size, by_name]),
        v.always_wrap_policy,
        v.ModuleWrapPolicy([nn.Sequential, nn.Linear]),
        v.CustomPolicy(accepts),
    ]

    for policy in policies:
        names = {module: name for name, module in model.named_modules()}
        ours = [names[unit] for unit in support.wrap_targets(model, policy, None, ignored, params)]
        assert ours == picked_by_fsdp1(model, policy, ignored, params), policy


@pytest.mark.parametrize("seed", range(40))
def test_units_by_size_are_those_of_fsdp1(seed: int, support: ModuleType) -> None:
    numbers = random.Random(seed)
    model = nn.Sequential(random_model(numbers), random_model(numbers))
    names = {module: name for name, module in model.named_modules()}
    numel = numbers.choice([1, 10, 40, 100])
    policy = partial(fsdp1_wrap.size_based_auto_wrap_policy, min_num_params=numel)
    ours = [names[unit] for unit in support.units_by_size(model, numel, whole=nn.MultiheadAttention)]
    assert ours == picked_by_fsdp1(model, policy, set(), set())


def test_shared_module_is_one_unit(support: ModuleType) -> None:
    shared = nn.Linear(2, 2)
    model = nn.Sequential(nn.Sequential(shared), nn.Sequential(nn.Linear(2, 2), shared))
    units = support.wrap_targets(model, fsdp1_wrap.always_wrap_policy)
    assert list(units) == [shared, model[0], model[1][0], model[1]]
    assert list(support.post_order(model)) == [shared, model[0], model[1][0], model[1], model]


def test_unit_ends_where_another_begins(support: ModuleType) -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2))
    assert support.unit_modules(model) == [model, model[0], model[1], model[0][0]]


def test_mixed_precision_casts_as_fsdp1(support: ModuleType) -> None:
    low = support.MixedPrecision(torch.bfloat16, torch.float32)
    assert not support.unit_mp_policy(low).cast_forward_inputs
    assert support.unit_mp_policy(low, is_root=True).cast_forward_inputs
    low.cast_root_forward_inputs = False
    assert not support.unit_mp_policy(low, is_root=True).cast_forward_inputs
    low.cast_forward_inputs = True
    assert support.unit_mp_policy(low).cast_forward_inputs
    assert support.unit_mp_policy(None).param_dtype is None
    assert support.float32_mp_policy(low) == fsdp1.MixedPrecisionPolicy(
        param_dtype=torch.float32, output_dtype=torch.bfloat16
    )


def test_buffers_are_cast_where_fsdp1_did(support: ModuleType) -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
    model.register_buffer("table", torch.ones(2))
    model.register_buffer("index", torch.ones(2, dtype=torch.int64))
    support.cast_buffers(model, torch.bfloat16)
    assert model.table.dtype is torch.bfloat16
    assert model.index.dtype is torch.int64
    assert model[0].running_mean.dtype is torch.float32
    assert model[1].weight.dtype is torch.float32
