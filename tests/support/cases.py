"""FSDP1 programs, written once and run on both vocabularies.

A case is handed `v`, which is FSDP1 or `fsdp2_support`: `v.shard_model` wraps, everything else has FSDP1's names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import ShardingStrategy as FSDP1ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy as FSDP1ModuleWrapPolicy

from . import models
from .models import Block, Outer

SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9)


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[], nn.Module]
    wrap: Callable[[Any, nn.Module], nn.Module]
    world: int = 2
    seed_by_rank: bool = False
    optimizer: Callable[..., torch.optim.Optimizer] = SGD
    input_dtype: torch.dtype = torch.float32


CASES: list[Case] = []


def case(make: Callable[[], nn.Module], **options: Any) -> Callable[..., Any]:
    """Register a function that wraps a model, or that gives the arguments for doing so."""

    def register(function: Callable[[Any, nn.Module], Any]) -> Callable[[Any, nn.Module], Any]:
        def wrap(v: Any, model: nn.Module) -> nn.Module:
            answer = function(v, model)
            return answer if isinstance(answer, nn.Module) else v.shard_model(model, **answer)

        CASES.append(Case(function.__name__, make, wrap, **options))
        return function

    return register


def blocks(v: Any) -> Any:
    return partial(v.transformer_auto_wrap_policy, transformer_layer_cls={Block})


# Policies


@case(models.Plain)
def no_policy(v, model):
    return {}


@case(models.Plain)
def transformer_policy(v, model):
    return {"auto_wrap_policy": blocks(v)}


@case(models.Nested)
def transformer_policy_with_nested_targets(v, model):
    return {"auto_wrap_policy": partial(v.transformer_auto_wrap_policy, transformer_layer_cls={Block, Outer})}


@case(models.Nested)
def policy_that_matches_the_root_and_containers(v, model):
    classes = {models.Nested, nn.ModuleDict, Outer}
    return {"auto_wrap_policy": partial(v.transformer_auto_wrap_policy, transformer_layer_cls=classes)}


@case(models.Nested)
def module_wrap_policy(v, model):
    return {"auto_wrap_policy": v.ModuleWrapPolicy({Block})}


@case(models.Nested)
def module_wrap_policy_inside_or_policy(v, model):
    policies = [v.ModuleWrapPolicy({Block}), partial(v.lambda_auto_wrap_policy, lambda_fn=lambda m: m is model.out)]
    return {"auto_wrap_policy": partial(v._or_policy, policies=policies)}


@case(models.Plain)
def lambda_policy_by_identity(v, model):
    return {"auto_wrap_policy": partial(v.lambda_auto_wrap_policy, lambda_fn=lambda m: m in model.blocks)}


@case(models.Plain)
def always_wrap_policy(v, model):
    return {"auto_wrap_policy": v.always_wrap_policy}


@case(models.Plain)
def own_policy(v, model):
    def policy(module, recurse, nonwrapped_numel):
        return nonwrapped_numel > 400 if recurse else isinstance(module, Block)

    return {"auto_wrap_policy": policy}


@case(models.Nested)
def custom_policy(v, model):
    return {"auto_wrap_policy": v.CustomPolicy(lambda m: isinstance(m, (Block, Outer)))}


@case(models.Nested)
def custom_policy_with_arguments(v, model):
    def units(module):
        if isinstance(module, Outer):
            return {"sharding_strategy": v.ShardingStrategy.SHARD_GRAD_OP, "backward_prefetch": None}
        if isinstance(module, Block):
            return {"mixed_precision": v.MixedPrecision(reduce_dtype=torch.float64)}
        if module is model.out:
            return {"sharding_strategy": v.ShardingStrategy.NO_SHARD}
        return False

    return {"auto_wrap_policy": v.CustomPolicy(units)}


def size_case(name: str, make: Callable[[], nn.Module], numel: int, dtype: Any = None, **options: Any) -> None:
    def wrap(v, model):
        policy = partial(v.size_based_auto_wrap_policy, min_num_params=numel, **options)
        return {"auto_wrap_policy": policy, "mixed_precision": dtype and v.MixedPrecision(dtype, torch.float32)}

    wrap.__name__ = f"size_policy_{name}_{numel}"
    case(make)(wrap)


for numel in (20, 300, 500, 1000, 10**9):
    size_case("plain", models.Plain, numel)
    size_case("attention", models.Attention, numel)
size_case("nested", models.Nested, 400)
size_case("forced_leaf", models.Nested, 100, force_leaf_modules={Block})
size_case("excluded", models.Nested, 100, exclude_wrap_modules={Block, nn.ModuleDict})
# With mixed precision, FSDP1 looks into every module: the same policy makes one unit here and two there.
size_case("root_is_leaf", models.BufferFree, 200, force_leaf_modules={nn.Sequential})
size_case("root_is_leaf_bf16", models.BufferFree, 200, torch.bfloat16, force_leaf_modules={nn.Sequential})
size_case("bf16", models.Plain, 300, torch.bfloat16)


@case(models.Plain)
def bare_size_policy(v, model):
    return {"auto_wrap_policy": v.size_based_auto_wrap_policy}


@case(models.Plain)
def size_policy_with_changed_defaults(v, model):
    leaves = v.size_based_auto_wrap_policy.FORCE_LEAF_MODULES | {Block}
    return {"auto_wrap_policy": partial(v.size_based_auto_wrap_policy, min_num_params=100, force_leaf_modules=leaves)}


@case(models.Tied)
def tied_weights_in_one_unit(v, model):
    return {"auto_wrap_policy": blocks(v)}


@case(models.Frozen)
def frozen_and_trained_in_one_unit(v, model):
    return {"auto_wrap_policy": blocks(v)}


@case(models.ChannelsLast, seed_by_rank=True)
def channels_last(v, model):
    return {"auto_wrap_policy": v.ModuleWrapPolicy({nn.Sequential}), "sync_module_states": True}


# By hand


@case(models.Plain)
def wrapped_by_hand(v, model):
    for index, block in enumerate(model.blocks):
        model.blocks[index] = v.shard_model(block)
    model.out = v.shard_model(model.out)
    return {}


@case(models.Plain)
def wrapped_by_hand_bf16(v, model):
    precision = v.MixedPrecision(torch.bfloat16, torch.float32)
    for index, block in enumerate(model.blocks):
        model.blocks[index] = v.shard_model(block, mixed_precision=precision)
    return {"mixed_precision": precision}


@case(models.Plain)
def inner_modules_only(v, model):
    for index, block in enumerate(model.blocks):
        model.blocks[index] = v.shard_model(block)
    return model


@case(models.Plain)
def enable_wrap(v, model):
    with v.enable_wrap(wrapper_cls=v.shard_model, sharding_strategy=v.ShardingStrategy.SHARD_GRAD_OP):
        model.inp = v.wrap(model.inp, sharding_strategy=v.ShardingStrategy.FULL_SHARD)
        for index, block in enumerate(model.blocks):
            model.blocks[index] = v.wrap(block)
        return v.wrap(model)


# Strategies


@case(models.Plain)
def strategy_that_a_library_made(v, model):
    strategy = FSDP1ShardingStrategy.SHARD_GRAD_OP
    return {"sharding_strategy": strategy, "auto_wrap_policy": FSDP1ModuleWrapPolicy({Block})}


def strategy_case(name: str) -> None:
    def wrap(v, model):
        return {"sharding_strategy": v.ShardingStrategy[name], "auto_wrap_policy": blocks(v)}

    wrap.__name__ = f"strategy_{name.lower()}"
    case(models.Plain)(wrap)


for name in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"):
    strategy_case(name)


@case(models.Plain, world=4)
def hybrid_without_groups_counts_visible_devices(v, model):
    torch.cpu.device_count = lambda: 2  # stands for `torch.cuda.device_count`
    return {"sharding_strategy": v.ShardingStrategy.HYBRID_SHARD, "auto_wrap_policy": blocks(v)}


def hybrid_groups():
    """Shard over neighbours, replicate over the rest."""
    rank = dist.get_rank()
    shard = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])][rank // 2]
    replicate = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])][rank % 2]
    return shard, replicate


@case(models.Plain, world=4)
def hybrid_with_groups(v, model):
    strategy = v.ShardingStrategy.HYBRID_SHARD
    return {"sharding_strategy": strategy, "process_group": hybrid_groups(), "auto_wrap_policy": blocks(v)}


@case(models.Plain, world=4)
def hybrid_zero2_with_groups_by_hand(v, model):
    options = {"sharding_strategy": v.ShardingStrategy._HYBRID_SHARD_ZERO2, "process_group": hybrid_groups()}
    for index, block in enumerate(model.blocks):
        model.blocks[index] = v.shard_model(block, **options)
    return options


@case(models.Plain, world=4)
def hybrid_with_mesh(v, model):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    strategy = v.ShardingStrategy.HYBRID_SHARD
    return {"sharding_strategy": strategy, "device_mesh": mesh, "auto_wrap_policy": blocks(v)}


@case(models.Plain, world=4)
def hybrid_zero2_with_nameless_mesh(v, model):
    strategy = v.ShardingStrategy._HYBRID_SHARD_ZERO2
    mesh = init_device_mesh("cpu", (2, 2))
    return {"sharding_strategy": strategy, "device_mesh": mesh, "auto_wrap_policy": blocks(v)}


@case(models.Plain, world=4)
def two_dimensional_mesh_without_hybrid_strategy(v, model):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    return {"device_mesh": mesh, "auto_wrap_policy": blocks(v)}


@case(models.Plain, world=4)
def nameless_two_dimensional_mesh_shard_grad_op(v, model):
    mesh = init_device_mesh("cpu", (4, 1))
    strategy = v.ShardingStrategy.SHARD_GRAD_OP
    return {"sharding_strategy": strategy, "device_mesh": mesh, "auto_wrap_policy": blocks(v)}


@case(models.Plain, world=4)
def sliced_mesh(v, model):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    return {"device_mesh": mesh["dp"], "auto_wrap_policy": blocks(v)}


@case(models.Plain, world=4)
def process_group_of_some_ranks(v, model):
    return {"process_group": hybrid_groups()[0], "auto_wrap_policy": blocks(v)}


@case(models.Plain, world=4)
def no_shard_over_some_ranks(v, model):
    strategy = v.ShardingStrategy.NO_SHARD
    return {"sharding_strategy": strategy, "process_group": hybrid_groups()[1], "auto_wrap_policy": blocks(v)}


@case(models.Plain, world=4)
def no_shard_with_mesh(v, model):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    strategy = v.ShardingStrategy.NO_SHARD
    return {"sharding_strategy": strategy, "device_mesh": mesh, "auto_wrap_policy": blocks(v)}


@case(models.Plain, world=4, seed_by_rank=True)
def sync_module_states_hybrid(v, model):
    strategy = v.ShardingStrategy.HYBRID_SHARD
    return {
        "sharding_strategy": strategy,
        "process_group": hybrid_groups(),
        "auto_wrap_policy": blocks(v),
        "sync_module_states": True,
    }


# Mixed precision


def precision_case(name: str, make: Callable[[], nn.Module], *arguments: Any, **options: Any) -> None:
    def wrap(v, model):
        return {"mixed_precision": v.MixedPrecision(*arguments, **options), "auto_wrap_policy": blocks(v)}

    wrap.__name__ = f"precision_{name}"
    case(make)(wrap)


BF16, FP32 = torch.bfloat16, torch.float32
precision_case("bf16_reduced_in_fp32", models.Plain, BF16, FP32)
precision_case("bf16", models.Plain, BF16)
precision_case("bf16_buffers", models.Plain, BF16, FP32, BF16)
precision_case("cast_forward_inputs", models.Plain, BF16, FP32, cast_forward_inputs=True)
precision_case("reduce_only", models.Plain, None, BF16)
precision_case("batch_norm", models.BatchNormed, BF16, FP32)
precision_case("batch_norm_bf16_buffers", models.BatchNormed, BF16, FP32, BF16)
precision_case("root_without_parameters", models.Rootless, BF16, FP32)
precision_case("layer_norm_in_float32", models.Plain, BF16, FP32, BF16, _module_classes_to_ignore=(nn.LayerNorm,))


@case(models.BatchNormed)
def precision_layer_norm_in_float32_by_module_policy(v, model):
    precision = v.MixedPrecision(BF16, FP32, BF16, _module_classes_to_ignore=(nn.BatchNorm1d, nn.LayerNorm))
    return {"mixed_precision": precision, "auto_wrap_policy": v.ModuleWrapPolicy({Block})}


@case(models.Plain, input_dtype=BF16)
def precision_without_any_cast(v, model):
    precision = v.MixedPrecision(BF16, FP32, BF16, cast_root_forward_inputs=False)
    return {"mixed_precision": precision, "auto_wrap_policy": blocks(v)}


@case(models.Plain)
def precision_of_one_unit(v, model):
    precision = v.MixedPrecision(BF16, FP32, BF16, cast_forward_inputs=True)
    policy = v.CustomPolicy(lambda m: {"mixed_precision": precision} if m is model.out else isinstance(m, Block))
    return {"auto_wrap_policy": policy}


# What is left alone


@case(models.Nested)
def ignored_modules(v, model):
    return {"ignored_modules": [model.layers["a"].inner], "auto_wrap_policy": blocks(v)}


@case(models.Nested)
def ignored_states_modules_by_size(v, model):
    policy = partial(v.size_based_auto_wrap_policy, min_num_params=500)
    return {"ignored_states": [model.layers["a"]], "auto_wrap_policy": policy}


@case(models.Nested)
def ignored_parameters_by_size(v, model):
    policy = partial(v.size_based_auto_wrap_policy, min_num_params=500)
    states = (p for p in model.layers["a"].inner.parameters())
    return {"ignored_states": states, "auto_wrap_policy": policy}


@case(models.Nested)
def ignored_modules_keep_their_buffers(v, model):
    precision = v.MixedPrecision(buffer_dtype=torch.float64)
    ignored = [model.layers["a"].inner]
    return {"ignored_modules": ignored, "mixed_precision": precision, "auto_wrap_policy": blocks(v)}


@case(models.Unused, optimizer=partial(torch.optim.AdamW, lr=0.1, weight_decay=0.5))
def parameters_without_gradient(v, model):
    return {"auto_wrap_policy": partial(v.transformer_auto_wrap_policy, transformer_layer_cls={Outer})}


# Where the values come from


@case(models.Plain, seed_by_rank=True)
def sync_module_states(v, model):
    return {"sync_module_states": True, "auto_wrap_policy": blocks(v)}


@case(models.Plain, seed_by_rank=True)
def sync_module_states_bf16_buffers(v, model):
    with torch.no_grad():
        model.blocks[1].scale.mul_(1 + dist.get_rank())
    precision = v.MixedPrecision(BF16, FP32, BF16)
    return {"sync_module_states": True, "auto_wrap_policy": blocks(v), "mixed_precision": precision}


@case(models.Plain, world=4, seed_by_rank=True)
def sync_module_states_of_some_ranks(v, model):
    return {"process_group": hybrid_groups()[0], "auto_wrap_policy": blocks(v), "sync_module_states": True}


@case(models.Plain, seed_by_rank=True)
def real_on_the_first_rank_and_meta_elsewhere(v, model):
    rank = dist.get_rank()
    if rank:
        model = model.to("meta")
    return v.shard_model(
        model,
        sync_module_states=True,
        auto_wrap_policy=blocks(v),
        param_init_fn=(lambda m: m.to_empty(device=torch.device("cpu"), recurse=False)) if rank else None,
    )


@case(models.Plain)
def meta_with_default_init(v, model):
    torch.manual_seed(3)
    return v.shard_model(model.to("meta"), auto_wrap_policy=blocks(v))


@case(models.Nested)
def meta_with_param_init_fn(v, model):
    def init(module):
        module.to_empty(device="cpu", recurse=False)
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()

    torch.manual_seed(3)
    policy = partial(v.transformer_auto_wrap_policy, transformer_layer_cls={Block, Outer})
    return v.shard_model(model.to("meta"), auto_wrap_policy=policy, param_init_fn=init)
