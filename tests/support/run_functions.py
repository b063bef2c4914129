"""Runs the checks of the training-loop and checkpoint functions in one process group.

usage: torchrun -m tests.support.run_functions FOLDER PART, with `fsdp2_support` on the path
"""

from __future__ import annotations

import copy
import io
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import fsdp2_support as support
import pytest
import torch
import torch.distributed as dist
import torch.distributed.fsdp as fsdp1
import torch.distributed.fsdp._fully_shard._fsdp_init as fsdp2_init
import torch.distributed.fsdp._init_utils as fsdp1_init
from torch import nn
from torch.distributed.algorithms._comm_hooks import default_hooks
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel as DDP

from . import models
from .harness import run_all
from .models import Block
from .observe import clean
from .vocabularies import FSDP1, FSDP2

CHECKS: dict[str, tuple[int, Callable[[], None]]] = {}


def check(world: int = 2) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(function: Callable[[], None]) -> Callable[[], None]:
        CHECKS[function.__name__] = (world, function)
        return function

    return register


def wrapped(v: Any, make: Callable[[], nn.Module] = models.Plain, **kwargs: Any) -> nn.Module:
    torch.manual_seed(5)
    kwargs.setdefault("auto_wrap_policy", partial(v.transformer_auto_wrap_policy, transformer_layer_cls={Block}))
    return v.shard_model(make(), **kwargs)


def batches(count: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * seed + dist.get_rank())
    return [torch.randn(4, 8, generator=generator) for _ in range(count)]


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(x).float().square().mean()


def equal(old: Any, new: Any, rel: float = 1e-6) -> None:
    if isinstance(old, dict):
        assert list(old) == list(new), f"{list(old)} != {list(new)}"
        for key in old:
            equal(old[key], new[key], rel)
    elif isinstance(old, list):
        assert len(old) == len(new)
        for one, other in zip(old, new, strict=True):
            equal(one, other, rel)
    elif isinstance(old, torch.Tensor):
        assert not isinstance(new, DTensor)
        torch.testing.assert_close(new, old, rtol=rel, atol=rel)
    elif isinstance(old, float):
        assert abs(old - new) <= rel * max(1.0, abs(old)), f"{old} != {new}"
    else:
        assert old == new, f"{old} != {new}"


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    if any(isinstance(m, FSDP) for m in model.modules()):
        with FSDP.summon_full_params(model, with_grads=True):
            return {clean(n): p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return {n: p.grad.full_tensor() for n, p in model.named_parameters() if p.grad is not None}


def raises(error: type[Exception], call: Callable[[], Any], words: str = "") -> None:
    with pytest.raises(error, match=re.escape(words)):
        call()


# no_sync


@check()
def no_sync_accumulates_as_fsdp1() -> None:
    for pattern in ("NNNS", "SSSS", "NSNS", "SNNS"):
        seen = []
        for v, no_sync in ((FSDP1, lambda m: m.no_sync()), (FSDP2, support.no_sync), (FSDP2, support.unsynced)):
            model = wrapped(v)
            for kind, x in zip(pattern, batches(4), strict=True):
                before = v is FSDP2 and bool(gradients(model))
                with no_sync(model) if kind == "N" else nullcontext():
                    loss_of(model, x).backward()
                if v is FSDP2:
                    assert bool(gradients(model)) == (before or kind == "S")
            seen.append(gradients(model))
        assert seen[0]
        equal(*seen[:2])
        equal(*seen[1:])


@check(world=4)
def no_sync_accumulates_with_replicas() -> None:
    """The ways that add up before the replicas talk, and the way that always synchronises, come to the same."""
    seen = []
    for v, no_sync in (
        (FSDP1, lambda m: m.no_sync()),
        (FSDP2, support.no_sync),
        (FSDP2, lambda m: nullcontext()),
        (FSDP2, without_all_reduce),
    ):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        model = wrapped(v, sharding_strategy=v.ShardingStrategy.HYBRID_SHARD, device_mesh=mesh)
        for kind, x in zip("NNS", batches(3), strict=True):
            with no_sync(model) if kind == "N" else nullcontext():
                loss_of(model, x).backward()
        seen.append(gradients(model))
    assert seen[0]
    for other in seen[1:]:
        equal(seen[0], other)


@check(world=4)
def the_group_of_a_model_has_the_ranks_of_fsdp1s() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    half = dist.new_subgroups(2)[0]
    for strategy, more in (
        ("FULL_SHARD", {}),
        ("FULL_SHARD", {"process_group": half}),
        ("NO_SHARD", {}),
        ("NO_SHARD", {"process_group": half}),
        ("HYBRID_SHARD", {"device_mesh": mesh}),
    ):
        pair = [wrapped(v, sharding_strategy=v.ShardingStrategy[strategy], **more) for v in (FSDP1, FSDP2)]
        groups = [pair[0].process_group, support.group_of(pair[1])]
        assert len({tuple(dist.get_process_group_ranks(group)) for group in groups}) == 1, (strategy, more)
    ddp = DDP(models.BufferFree())
    assert support.group_of(ddp) is ddp.process_group


@contextmanager
def without_all_reduce(model: Any) -> Iterator[None]:
    model.set_requires_all_reduce(False)
    yield
    model.set_requires_all_reduce(True)


@check()
def which_backward_is_the_last_changes_no_gradient() -> None:
    seen = []
    for setting in (None, "set_is_last_backward", "set_reshard_after_backward"):
        model = wrapped(FSDP2)
        for last, x in zip((False, True), batches(2), strict=True):
            if setting is not None:
                getattr(model, setting)(last)
            loss_of(model, x).backward()
        seen.append(gradients(model))
    assert seen[0]
    for other in seen[1:]:
        equal(seen[0], other)


@check()
def no_sync_is_decided_where_the_backward_runs() -> None:
    model = wrapped(FSDP2)
    (x,) = batches(1)
    with support.no_sync(model):
        loss = loss_of(model, x)
    loss.backward()
    assert len(gradients(model)) == len(list(model.parameters()))


@check()
def no_sync_survives_exceptions() -> None:
    model = wrapped(FSDP2)
    (x,) = batches(1)
    try:
        with support.no_sync(model):
            raise KeyError
    except KeyError:
        pass
    loss_of(model, x).backward()
    assert gradients(model), "synchronisation stayed off"


@check()
def no_sync_takes_ddp() -> None:
    torch.manual_seed(5)
    model = DDP(models.BufferFree())
    (x,) = batches(1)
    with support.no_sync(model):
        loss_of(model, x).backward()
    local = model.module[0].weight.grad.clone()
    dist.all_reduce(local)
    assert not torch.allclose(local / 2, model.module[0].weight.grad)
    assert support.unwrap(model) is model.module
    assert support.unwrap(torch.nn.DataParallel(model.module)) is model.module
    own = nn.Module()
    own.module = model.module
    assert support.unwrap(own) is model.module, "a model has a part of this name, as it was"
    sharded = fully_shard(nn.Linear(2, 2))
    for wrapped, inner in ((sharded, sharded), (model, model.module)):
        assert support.unwrap_compiled(wrapped) is inner
        assert support.unwrap_compiled(torch.compile(wrapped, backend="eager")) is inner
    compiled = fully_shard(torch.compile(nn.Linear(2, 2), backend="eager"))
    assert support.unwrap_compiled(compiled) is compiled


@check()
def leftover_microbatches_are_dropped() -> None:
    for reduce_dtype in (None, torch.float64):  # the second makes FSDP2 accumulate in another place
        losses = []
        for v, no_sync in ((FSDP1, lambda m: m.no_sync()), (FSDP2, support.no_sync)):
            model = wrapped(v, mixed_precision=v.MixedPrecision(reduce_dtype=reduce_dtype))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            seen = []
            for epoch in range(3):
                optimizer.zero_grad()
                if v is FSDP2:
                    support.discard_unsynced_gradients(model)
                for index, x in enumerate(batches(3, epoch)):
                    with nullcontext() if index == 1 else no_sync(model):
                        loss = loss_of(model, x)
                        loss.backward()
                    seen.append(loss.item())
                    if index == 1:
                        optimizer.step()
                        optimizer.zero_grad()
            losses.append(seen)
        equal(*losses, rel=1e-5)


@check()
def leftover_microbatches_stay_for_another_optimizer() -> None:
    losses = []
    for v, no_sync in ((FSDP1, lambda m: m.no_sync()), (FSDP2, support.no_sync)):
        model, other = wrapped(v), wrapped(v)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        others = torch.optim.SGD(other.parameters(), lr=0.1)
        seen = []
        for index, x in enumerate(batches(4)):
            others.zero_grad()
            if v is FSDP2:
                support.discard_unsynced_gradients(model, others)
            with nullcontext() if index % 2 else no_sync(model):
                loss = loss_of(model, x)
                loss.backward()
            seen.append(loss.item())
            if index % 2:
                optimizer.step()
                optimizer.zero_grad()
        losses.append(seen)
    equal(*losses, rel=1e-5)


# Clipping


def clip_both(
    norm_type: float, make: Any = models.Plain, ignored: str = "", clip: Any = support.clip_grad_norm_, **own: Any
) -> None:
    max_norm = 0.01
    norms, sizes = [], []
    for v in (FSDP1, FSDP2):
        torch.manual_seed(5)
        model = make()
        kwargs = {name: value(v) for name, value in own.items()}
        if ignored:
            kwargs["ignored_modules"] = [model.get_submodule(ignored)]
        policy = partial(v.transformer_auto_wrap_policy, transformer_layer_cls={Block})
        model = v.shard_model(model, auto_wrap_policy=policy, **kwargs)
        loss_of(model, batches(1)[0].to(next(model.parameters()).dtype)).backward()
        if v is FSDP1:
            norms.append(model.clip_grad_norm_(max_norm, norm_type))
        else:
            norms.append(clip(model.parameters(), max_norm, norm_type))
        size = sum(local(p.grad).double().square().sum() for p in model.parameters() if p.grad is not None)
        dist.all_reduce(size)
        sizes.append(size)
    equal(norms[0], norms[1].to(norms[0].dtype))
    assert norms[0] > max_norm, "there is nothing to clip"
    if not ignored:  # else the ranks clip by norms of their own, and cut the parameters up differently
        equal(*sizes, rel=1e-5)


def local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@check()
def clipping_by_every_norm() -> None:
    for norm_type in (1, 2, 3, 2.5, float("inf")):
        clip_both(norm_type)
        clip_both(norm_type, clip=support.clip_any_grad_norm_)


@check()
def clipping_on_two_meshes() -> None:
    for norm_type in (2, float("inf")):
        norms, sizes = [], []
        for v in (FSDP1, FSDP2):
            torch.manual_seed(5)
            model = models.Plain()
            model.inp = v.shard_model(model.inp, sharding_strategy=v.ShardingStrategy.NO_SHARD)
            model = v.shard_model(model)
            (10 * loss_of(model, batches(1)[0])).backward()
            clip = partial(support.clip_grad_norm_on_meshes_, model.parameters())
            norms.append((model.clip_grad_norm_ if v is FSDP1 else clip)(0.01, norm_type))
            size = sum(local(p.grad).double().square().sum() for p in model.parameters() if p.grad is not None)
            dist.all_reduce(size)
            sizes.append(size)
        equal(*norms)
        equal(*sizes, rel=1e-5)


def clip_by_torch(parameters: Any, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    norm: Any = torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)
    return norm.full_tensor()


@check()
def clipping_offloaded_gradients() -> None:
    for norm_type in (1, 2, 2.5):
        # FSDP1 pins what it offloads, for which there has to be an accelerator: its norm is the same without.
        offloaded = {"cpu_offload": lambda v: v.CPUOffload(offload_params=v is FSDP2)}
        clip_both(norm_type, clip=support.clip_offloaded_grad_norm_, **offloaded)
        clip_both(norm_type, clip=clip_by_torch, **offloaded)  # where the group takes CPU tensors
    clip_both(2, ignored="out", clip=support.clip_mixed_grad_norm_, **offloaded)


@check()
def clipping_with_ignored_parameters() -> None:
    for clip in (support.clip_any_grad_norm_, support.clip_grad_norm_on_meshes_):
        for norm_type in (2, float("inf")):
            clip_both(norm_type, ignored="out", clip=clip)
    clip_both(2, ignored="out", clip=support.clip_mixed_grad_norm_)


@check()
def clipping_a_model_that_is_not_sharded() -> None:
    for clip in (
        support.clip_grad_norm_,
        support.clip_any_grad_norm_,
        support.clip_mixed_grad_norm_,
        support.clip_offloaded_grad_norm_,
        support.clip_grad_norm_on_meshes_,
    ):
        torch.manual_seed(5)
        model = models.Plain()
        loss_of(model, batches(1)[0]).backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
        equal(norm, clip(model.parameters(), 0.01))
        equal(torch.tensor(0.01), torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]))


@check()
def clipping_with_frozen_parameters_and_without_sharding() -> None:
    clip_both(2, make=models.Frozen)
    clip_both(2, sharding_strategy=lambda v: v.ShardingStrategy.NO_SHARD)


@check()
def clipping_parameters_of_low_and_high_precision() -> None:
    clip_both(2, make=lambda: models.BufferFree().bfloat16())


@check(world=4)
def clipping_with_replicas() -> None:
    def mesh(v: Any) -> Any:
        return init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))

    for norm_type in (2, float("inf")):
        for clip in (support.clip_grad_norm_, support.clip_any_grad_norm_):
            strategy = {"sharding_strategy": lambda v: v.ShardingStrategy.HYBRID_SHARD, "device_mesh": mesh}
            clip_both(norm_type, clip=clip, **strategy)
    clip_both(2, clip=support.clip_offloaded_grad_norm_, **strategy)
    clip_both(2, clip=clip_by_torch, **strategy, cpu_offload=lambda v: v.CPUOffload(offload_params=v is FSDP2))


# Around the wrap


@check()
def units_give_their_memory_back_whatever_a_forward_left() -> None:
    """What FM440 writes."""
    model = wrapped(FSDP2, sharding_strategy=support.ShardingStrategy.SHARD_GRAD_OP)
    with torch.no_grad():
        model(batches(1)[0])
    for unit in model.modules():
        if isinstance(unit, FSDPModule):
            unit.reshard()
            for param in unit.parameters():
                if isinstance(param, DTensor):
                    param.to_local().untyped_storage().resize_(0)
    assert all(p.to_local().untyped_storage().nbytes() == 0 for p in model.parameters())


@check()
def reshard_all_reaches_every_unit() -> None:
    model = wrapped(FSDP2, sharding_strategy=support.ShardingStrategy.SHARD_GRAD_OP)
    with torch.no_grad():
        model(batches(1)[0])
    assert not any(isinstance(p, DTensor) for p in model.parameters())
    support.reshard_all(model)
    assert all(isinstance(p, DTensor) for p in model.parameters())


@check()
def writes_behind_an_evaluation_are_kept() -> None:
    for strategy in ("FULL_SHARD", "SHARD_GRAD_OP"):
        losses = []
        for evaluated in (False, True):
            model = wrapped(FSDP2, sharding_strategy=support.ShardingStrategy[strategy])
            if evaluated:
                with torch.no_grad():
                    model(batches(1)[0])
            support.reshard_all(model)
            with torch.no_grad():
                for param in model.parameters():
                    param.clamp_(-0.1, 0.1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            losses.append(continue_training(model, optimizer, seed=0))
        equal(*losses)


@check()
def shards_are_read_and_written_as_the_traps_say() -> None:
    """What FM420, FM421, FM422 and FM423 warn of: none of it raises."""
    model = wrapped(FSDP2)
    weight = model.inp.weight
    whole = weight.full_tensor()
    for kind in ("norm", "sum", "mean", "max", "min"):
        assert getattr(weight, kind)().item() == pytest.approx(getattr(weight.to_local(), kind)().item())
        equal(getattr(weight, kind)().full_tensor(), getattr(whole, kind)(), rel=1e-5)
    assert weight.count_nonzero().item() == weight.to_local().numel()
    equal(weight.std().item(), whole.std().item())  # of all ranks: on one rank alone it would wait
    with torch.no_grad():
        weight[3].zero_()
    equal(weight.full_tensor(), whole)  # lost
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in models.Plain().parameters())
    with support.no_sync(model):
        loss_of(model, batches(1)[0]).backward()
        assert all(p.grad is None for p in model.parameters())


@check()
def writes_to_shards_are_kept_or_lost_as_the_traps_say() -> None:
    """What FM209, FM213, FM416 and FM421 are about."""
    x = batches(1)[0]

    def kept(write: Callable[[nn.Module], Any], evaluated: bool = False) -> bool:
        """Whether zeros that are written to the last weight are what the next forward uses."""
        model = wrapped(FSDP2)
        loss_of(model, x).backward()
        with torch.no_grad():
            if evaluated:
                model(x)
            write(model)
            support.reshard_all(model)
            return bool(model(x).eq(model.out.bias).all())

    def put(model: nn.Module) -> None:
        model.out.weight = nn.Parameter(torch.zeros_like(model.out.weight))

    def assign(model: nn.Module) -> None:
        model.out.weight.data = torch.zeros_like(model.out.weight)

    def unshard(model: nn.Module) -> None:
        model.unshard()
        model.out.weight.zero_()

    def distribute(model: nn.Module) -> None:
        weight = model.out.weight
        weight.copy_(distribute_tensor(torch.zeros(weight.shape), weight.device_mesh, weight.placements))

    def columns(model: nn.Module) -> None:
        model.out.weight[:, : models.WIDTH] *= 0

    def row(model: nn.Module) -> None:
        model.inp.weight[3:4] = 0

    assert kept(lambda model: model.out.weight.zero_())
    assert kept(lambda model: model.out.weight.data.fill_(0))
    assert kept(distribute)
    assert kept(columns)
    assert not kept(lambda model: model.out.weight.full_tensor().zero_())
    assert not kept(unshard)
    assert not kept(assign)
    assert not kept(put)
    assert not kept(lambda model: model.out.weight.zero_(), evaluated=True)
    raises(RuntimeError, partial(kept, lambda model: model.out.weight.copy_(torch.zeros(1, models.WIDTH))), "mixed")
    raises(RuntimeError, partial(kept, row))


@check()
def random_values_of_shards_are_not_those_of_whole_tensors() -> None:
    """What FM403 and FM416 are about: on the CPU, each rank draws for its own shard."""
    for rows, is_even in ((6, True), (5, False)):
        weight = fully_shard(nn.Linear(8, rows)).weight
        torch.manual_seed(3)
        nn.init.normal_(weight)
        draws = [torch.empty(1) for _ in range(2)]
        dist.all_gather(draws, torch.rand(1))
        halves = weight.full_tensor().chunk(2)
        assert torch.equal(*halves) is is_even, "ranks with shards of one size draw the same values"
        assert torch.equal(*draws) is is_even, "and go on with other ones where the sizes differ"


@check()
def a_compressing_hook_is_a_reduce_dtype() -> None:
    """The hint of FM211. FSDP1's hooks keep memory for a stream, and the CPU has none."""
    for hook, dtype in (
        (default_hooks.bf16_compress_hook, torch.bfloat16),
        (default_hooks.fp16_compress_hook, torch.float16),
    ):
        old = wrapped(FSDP1)
        old.register_comm_hook(default_hooks.LowPrecisionState(process_group=dist.group.WORLD), hook)
        new = wrapped(FSDP2, mixed_precision=support.MixedPrecision(reduce_dtype=dtype))
        with patch.object(torch.Tensor, "record_stream", lambda *_: None):
            for model in (old, new):
                loss_of(model, batches(1)[0]).backward()
        equal(gradients(old), gradients(new))


@check(world=4)
def a_reduction_in_bf16_over_four_ranks_is_near() -> None:
    """FSDP2 adds the ranks up in another order: what is equal on two ranks, and in float32 on four, cannot be here."""
    losses = {}
    for dtype in (torch.bfloat16, torch.float32):
        runs = [trained(v, mixed_precision=v.MixedPrecision(torch.bfloat16, dtype)) for v in (FSDP1, FSDP2)]
        losses[dtype] = [continue_training(*run, seed=1, steps=5) for run in runs]
    equal(*losses[torch.float32], rel=2e-5)
    equal(*losses[torch.bfloat16], rel=8e-3)


@check()
def a_divide_factor_adds_up_and_reaches_one_unit() -> None:
    """Gradients that a program scaled by FSDP1's factors have to be scaled unit by unit, and by a sum on gloo."""
    seen = []
    for units in (0, 1, None):
        model = wrapped(FSDP2)
        for unit in [m for m in model.modules() if isinstance(m, FSDPModule)][:units]:
            unit.set_gradient_divide_factor(1.0)
            unit.set_force_sum_reduction_for_comms(True)
        loss_of(model, batches(1)[0]).backward()
        seen.append(gradients(model))
    average, root, total = seen
    equal({name: 2 * grad for name, grad in average.items()}, total)
    of_root = {name for name in average if not torch.equal(average[name], root[name])}
    assert of_root == {name for name in average if name.startswith(("inp.", "out."))}
    model = wrapped(FSDP2)
    model.set_gradient_divide_factor(1.0)
    raises(RuntimeError, lambda: loss_of(model, batches(1)[0]).backward(), "PREMUL_SUM")


@check()
def a_step_on_unsynchronised_gradients_raises_or_does_nothing() -> None:
    """A program of FSDP1 that works has none: what FSDP2 passes over, FSDP1 refused."""
    for v, no_sync in ((FSDP1, lambda m: m.no_sync()), (FSDP2, support.no_sync)):
        model = wrapped(v)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        before = [local(p).detach().clone() for p in model.parameters()]
        with no_sync(model):
            loss_of(model, batches(1)[0]).backward()
        if v is FSDP1:
            raises(RuntimeError, optimizer.step, "size of tensor")
        else:
            optimizer.step()
            equal(before, [local(p).detach() for p in model.parameters()])


@check()
def what_is_left_of_fsdp1_is_silent() -> None:
    """Why a leftover raises: on an FSDP2 model these do nothing, and say nothing."""
    model = wrapped(FSDP2)
    with FSDP.summon_full_params(model):
        assert all(isinstance(p, DTensor) for p in model.parameters())
    with pytest.raises(KeyError), FSDP.state_dict_type(model, fsdp1.StateDictType.FULL_STATE_DICT):
        assert isinstance(model.state_dict()["inp.weight"], DTensor)  # the error comes when that is saved
    FSDP.set_state_dict_type(model, fsdp1.StateDictType.FULL_STATE_DICT)
    assert isinstance(model.state_dict()["inp.weight"], DTensor)
    assert FSDP.fsdp_modules(model) == []
    assert not isinstance(model, FSDP)
    for name in ("no_sync", "clip_grad_norm_", "module"):
        raises(AttributeError, partial(getattr, model, name))


@check()
def an_optimizer_from_before_trains_nothing() -> None:
    """What FM405 and FM502 are about."""
    model = models.Plain()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    FSDP2.shard_model(model)
    before = summoned_values(model)
    continue_training(model, optimizer, 0, 2)
    equal(before, summoned_values(model))


@check()
def a_norm_that_is_not_finite_raises_on_every_rank() -> None:
    model = wrapped(FSDP2)
    loss_of(model, batches(1)[0]).backward()
    if dist.get_rank() == 1:
        model.inp.weight.grad.to_local().fill_(float("nan"))
    clip = partial(torch.nn.utils.clip_grad_norm_, model.parameters(), 1.0, error_if_nonfinite=True)
    raises(RuntimeError, clip, "non-finite")


@check()
def what_the_traps_call_an_error_is_one() -> None:
    """FM402, FM407, FM412, FM422: these raise, on every rank, and need no word from a person to be seen."""
    model = wrapped(FSDP2)
    loss_of(model, batches(1)[0]).backward()
    raises(NotImplementedError, lambda: dist.all_reduce(model.inp.weight.grad), "sharding strategy")
    raises(AssertionError, lambda: copy.deepcopy(model), "deepcopy")
    raises(AssertionError, lambda: torch.optim.swa_utils.AveragedModel(model), "deepcopy")
    raises(Exception, lambda: torch.save(model, io.BytesIO()))
    raises(RuntimeError, lambda: torch.nn.utils.parameters_to_vector(model.parameters()))
    raises(RuntimeError, lambda: model.out(torch.ones(1, models.WIDTH)), "mixed")
    for kind in (torch.optim.Adafactor, torch.optim.Rprop, torch.optim.Muon):
        params = [p for p in model.parameters() if p.ndim == 2]
        raises(Exception, lambda kind=kind, params=params: kind(params).step())


@check()
def inference_mode_in_the_first_forward_fails_in_both() -> None:
    for v in (FSDP1, FSDP2):
        model = wrapped(v)
        with torch.inference_mode():
            model(batches(1)[0])
        raises(Exception, lambda model=model: loss_of(model, batches(1)[0]).backward())


@check()
def rebound_optimizer_trains_as_fsdp1() -> None:
    losses = []
    for v in (FSDP1, FSDP2):
        torch.manual_seed(5)
        model = models.Plain()
        old = list(model.named_parameters())
        decay, rest = [p for n, p in old if "weight" in n], [p for n, p in old if "weight" not in n]
        optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.3}, {"params": rest}], lr=0.05)
        model = v.shard_model(model)
        if v is FSDP2:
            support.rebind_optimizer(optimizer, old, model)
        seen = []
        for x in batches(4):
            loss = loss_of(model, x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        losses.append(seen)
    equal(*losses)
    raises(ValueError, lambda: support.rebind_optimizer(optimizer, old, model), "before the first step")


# summon_full_params


def summoned_values(model: nn.Module) -> dict[str, torch.Tensor]:
    if any(isinstance(m, FSDP) for m in model.modules()):
        with FSDP.summon_full_params(model, writeback=False):
            return {clean(n): p.detach().clone() for n, p in model.named_parameters()}
    return {n: p.clone() for n, p in support.full_parameters(model).items()}


@check()
def ranks_that_write_different_values_keep_a_piece_of_each() -> None:
    for summon in (support.summon_full_params, support.full_params):
        model = wrapped(FSDP2)
        with summon(model), torch.no_grad():
            model.inp.weight.fill_(dist.get_rank())
            model.out.bias[0] = 5
        weight = support.full_parameters(model)["inp.weight"]
        assert weight[: models.WIDTH // 2].eq(0).all()
        assert weight[models.WIDTH // 2 :].eq(1).all()
        assert support.full_parameters(model)["out.bias"].item() == 5
        with summon(model, writeback=False), torch.no_grad():
            model.inp.weight.fill_(9)
        equal(weight, support.full_parameters(model)["inp.weight"])


@check()
def summoned_writes_of_equal_ranks_equal_fsdp1() -> None:
    seen = []
    for v, summon in ((FSDP1, FSDP.summon_full_params), (FSDP2, support.summon_full_params)):
        model = wrapped(v, mixed_precision=v.MixedPrecision(torch.bfloat16, torch.float32))
        loss_of(model, batches(1)[0]).backward()
        with summon(model, with_grads=True):
            torch.manual_seed(9)
            for p in model.parameters():
                nn.init.normal_(p)
                p.grad.mul_(3)
        seen.append([summoned_values(model), gradients(model)])
    equal(*seen, rel=1e-6)


@check()
def apply_inside_summon_equals_the_plain_model() -> None:
    def init(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight)
            nn.init.eye_(module.weight) if module.weight.shape[0] == 17 else None

    plain, model = models.Plain(), wrapped(FSDP2)
    torch.manual_seed(8)
    plain.apply(init)
    torch.manual_seed(8)
    with support.full_params(model):
        model.apply(init)
    new = summoned_values(model)
    equal(
        {n: p.detach() for n, p in plain.named_parameters() if "weight" in n and "norm" not in n},
        {n: p for n, p in new.items() if "weight" in n and "norm" not in n},
    )
    loss_of(model, batches(1)[0]).backward()


@check()
def summon_keeps_tied_weights_and_its_options() -> None:
    model = wrapped(FSDP2, models.Tied)
    for summon in (support.summon_full_params, support.full_params):
        with summon(model):
            assert model.inp.weight is model.head.weight
        assert model.inp.weight is model.head.weight
    for summon in (support.summon_full_params, support.full_params):
        with summon(model, recurse=False):
            assert not isinstance(model.table.weight, DTensor)
            assert all(isinstance(p, DTensor) for p in model.block.parameters())
        with summon(model, writeback=False, rank0_only=True, offload_to_cpu=True):
            assert isinstance(model.inp.weight, DTensor) == (dist.get_rank() != 0)
    raises(NotImplementedError, lambda: support.summon_full_params(model, rank0_only=True).__enter__(), "writeback")


# Checkpoints


def trained(v: Any, steps: int = 2, **kwargs: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = wrapped(v, **kwargs)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
    continue_training(model, optimizer, 0, steps)
    return model, optimizer


def continue_training(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int, steps: int = 3) -> list[float]:
    losses = []
    for x in batches(steps, seed):
        loss = loss_of(model, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def fsdp1_full(model: nn.Module, optimizer: torch.optim.Optimizer, **config: Any) -> tuple[dict, dict]:
    kinds = fsdp1.FullStateDictConfig(**config), fsdp1.FullOptimStateDictConfig(offload_to_cpu=False, **config)
    with FSDP.state_dict_type(model, fsdp1.StateDictType.FULL_STATE_DICT, *kinds):
        return dict(model.state_dict()), FSDP.optim_state_dict(model, optimizer, group=model.process_group)


def by_name(optim: dict[str, Any]) -> dict[str, Any]:
    """An optimizer's state by the names of the parameters, whose order says nothing."""
    return dict(sorted(optim.get("state", {}).items()))


@check()
def full_state_dicts_equal_fsdp1() -> None:
    old, new = trained(FSDP1), trained(FSDP2)
    model, optim = fsdp1_full(*old)
    equal(model, support.full_state_dict(new[0]))
    equal(by_name(optim), by_name(support.full_optim_state_dict(*new)))
    groups = [
        [{"params": sorted(g["params"]), "lr": g["lr"], "weight_decay": g["weight_decay"]} for g in s["param_groups"]]
        for s in (optim, support.full_optim_state_dict(*new))
    ]
    equal(*groups)
    first = dist.get_rank() == 0
    for offload in (False, True):
        assert bool(support.full_state_dict(new[0], offload, rank0_only=True)) == first
        assert bool(support.full_optim_state_dict(*new, rank0_only=True, offload_to_cpu=offload)) == first


@check()
def full_state_dicts_for_a_library() -> None:
    old, new = trained(FSDP1), trained(FSDP2)
    model, _ = fsdp1_full(*old)
    with support.full_state_dicts(new[0]):
        equal(model, new[0].state_dict())
        equal({f"a.{name}": value for name, value in model.items()}, nn.ModuleDict({"a": new[0]}).state_dict())
    for offload in (False, True):
        with support.full_state_dicts(new[0], offload, rank0_only=True):
            state = new[0].state_dict()
        assert bool(state) == (dist.get_rank() == 0)
        assert not offload or {value.device.type for value in state.values()} <= {"cpu"}
    assert any(isinstance(value, DTensor) for value in new[0].state_dict().values())


@check()
def a_library_loads_full_state_dicts() -> None:
    """As FSDP1 let it, in its context of the same kind; where the model is a part of another, too."""
    (old, _), (new, _) = trained(FSDP1), trained(FSDP2)
    with FSDP.state_dict_type(old, fsdp1.StateDictType.FULL_STATE_DICT):
        state = {name: torch.full_like(value, 2.5) for name, value in old.state_dict().items()}
        old.load_state_dict(state)
        full = dict(old.state_dict())
    with support.full_state_loads(new):
        new.load_state_dict(state)
        new.load_state_dict({**new.state_dict(), **state})
        nn.ModuleDict({"a": new}).load_state_dict({f"a.{name}": value for name, value in full.items()})
    equal(full, support.full_state_dict(new))
    with pytest.raises((RuntimeError, ValueError)):
        new.load_state_dict(state)


@check()
def full_state_dict_of_other_strategies() -> None:
    plain = support.full_state_dict(trained(FSDP2)[0])
    for name in ("SHARD_GRAD_OP", "NO_SHARD"):
        model, _ = trained(FSDP2, sharding_strategy=support.ShardingStrategy[name])
        state = support.full_state_dict(model)
        equal(plain, state)
        before = {n: p.clone() for n, p in support.full_parameters(model).items()}
        for tensor in state.values():
            tensor.zero_()
        equal(before, support.full_parameters(model))


def of_this_pair(v: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model over two of four ranks; the other two have another one."""
    group, _ = dist.new_subgroups(2)
    model = wrapped(v, process_group=group, use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05 * (1 + dist.get_rank() // 2))
    continue_training(model, optimizer, 0, 2)
    return model, optimizer


@check(world=4)
def first_rank_is_that_of_the_models_group() -> None:
    old, new = of_this_pair(FSDP1), of_this_pair(FSDP2)
    model, optim = fsdp1_full(*old, rank0_only=True)
    equal(model, support.full_state_dict(new[0], rank0_only=True))
    equal(by_name(optim), by_name(support.full_optim_state_dict(*new, rank0_only=True, offload_to_cpu=False)))
    assert bool(model) == (dist.get_rank() % 2 == 0)
    with support.summon_full_params(new[0], writeback=False, rank0_only=True):
        assert isinstance(next(new[0].parameters()), DTensor) != bool(model)


@check(world=4)
def first_ranks_of_replicas() -> None:
    seen = []
    for v in (FSDP1, FSDP2):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        model, optimizer = trained(v, sharding_strategy=v.ShardingStrategy.HYBRID_SHARD, device_mesh=mesh)
        state = fsdp1_full(model, optimizer, rank0_only=True)[0] if v is FSDP1 else None
        seen.append(support.full_state_dict(model, rank0_only=True) if state is None else state)
    equal(*seen)


@check(world=4)
def each_group_loads_its_own() -> None:
    model, _ = of_this_pair(FSDP2)
    state = {
        name: torch.full_like(value, dist.get_rank() // 2) for name, value in support.full_state_dict(model).items()
    }
    support.load_full_state_dict(model, state)
    equal(state, support.full_state_dict(model))
    model.load_state_dict = None  # FSDP1's wrapper went past such a method
    state = {name: value + 1 for name, value in state.items()}
    support.load_past_own_method(model, state)
    equal(state, support.full_state_dict(model))


@check(world=4)
def each_group_goes_on_with_its_own_optimizer() -> None:
    """What FM303 writes for a model over a process group of its own, from what FSDP1 saved there."""
    old, new = of_this_pair(FSDP1), of_this_pair(FSDP2)
    model_state, optim_state = fsdp1_full(*old)
    continue_training(*new, seed=2)  # so that nothing is right by itself
    support.load_full_state_dict(new[0], model_state)
    options = StateDictOptions(full_state_dict=True, strict=False)
    set_optimizer_state_dict(*new, support.with_own_steps(optim_state), options=options)
    equal(continue_training(*old, seed=1), continue_training(*new, seed=1))
    rates = [None] * dist.get_world_size()
    dist.all_gather_object(rates, new[1].param_groups[0]["lr"])
    assert rates == [0.05, 0.05, 0.1, 0.1]


@check()
def full_checkpoint_of_fsdp1_goes_on_as_in_fsdp1() -> None:
    for use_orig_params in (True, False):
        old = trained(FSDP1, use_orig_params=use_orig_params)
        model_state, optim_state = fsdp1_full(*old)
        # Through a file and back: torch.save keeps two names of one `step` tensor as one tensor.
        new = trained(FSDP2, steps=1)
        first = dist.get_rank() == 0
        support.load_full_state_dict(new[0], model_state)
        support.optim_state_dict_to_load(*new, support.with_own_steps(optim_state) if first else None)
        equal(continue_training(*old, seed=1), continue_training(*new, seed=1))


@check()
def what_a_scheduler_adds_to_the_groups_reaches_every_rank() -> None:
    model, optimizer = trained(FSDP2)
    optimizer.param_groups[0]["initial_lr"] = 0.4
    saved = support.full_optim_state_dict(model, optimizer)
    for load in (support.load_optimizer_state, support.optim_state_dict_to_load):
        new = trained(FSDP2, steps=1)
        load(*new, saved if dist.get_rank() == 0 else None)
        assert new[1].param_groups[0]["initial_lr"] == 0.4


@check()
def missing_key_is_an_error() -> None:
    model, _ = trained(FSDP2)
    state = support.full_state_dict(model)
    weight = state.pop("out.weight")
    raises(RuntimeError, lambda: support.load_full_state_dict(model, state), "out.weight")
    before = support.full_parameters(model)["out.weight"].clone()
    state["inp.weight"].fill_(4)
    support.load_full_state_dict(model, state, strict=False)
    equal(before, support.full_parameters(model)["out.weight"])
    assert support.full_parameters(model)["inp.weight"].eq(4).all()
    assert weight.shape == (1, models.WIDTH)


@check()
def state_dict_type_decides() -> None:
    model, optimizer = trained(FSDP2)
    equal(support.full_state_dict(model), support.model_state_dict(model))
    equal(support.full_state_dict(model), support.whole_state_dict(model))
    kind = support.StateDictType.SHARDED_STATE_DICT
    with support.state_dict_type(model, kind):
        state, optim = support.model_state_dict(model), support.optim_state_dict(model, optimizer)
        assert isinstance(state["inp.weight"], DTensor)
        assert isinstance(optim["state"]["inp.weight"]["exp_avg"], DTensor)
        expected = continue_training(*trained(FSDP2), seed=1)
        other = trained(FSDP2, steps=1)
        with support.state_dict_type(other[0], kind):
            support.load_model_state_dict(other[0], state)
            other[1].load_state_dict(support.optim_state_dict_to_load(*other, optim))
        equal(expected, continue_training(*other, seed=1))
    first = dist.get_rank() == 0
    config = support.FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    optim_config = support.FullOptimStateDictConfig(rank0_only=True)
    before = support.set_state_dict_type(model, support.StateDictType.FULL_STATE_DICT, config, optim_config)
    assert before.state_dict_type is support.StateDictType.FULL_STATE_DICT
    assert bool(support.model_state_dict(model)) == bool(support.optim_state_dict(model, optimizer)) == first
    support.set_state_dict_type(model, support.StateDictType.LOCAL_STATE_DICT)
    support.load_model_state_dict(model, support.model_state_dict(model))
    raises(NotImplementedError, lambda: support.optim_state_dict(model, optimizer), "LOCAL_STATE_DICT")
    with support.state_dict_type(model, kind):
        assert isinstance(support.model_state_dict(model)["inp.weight"], DTensor)


@check()
def state_dict_takes_what_torch_takes() -> None:
    model, _ = trained(FSDP2)
    full, into = support.full_state_dict(model), {"before": 1}
    assert support.state_dict_of(model, into, "net.") is into
    assert into.pop("before") == 1
    equal({f"net.{name}": value for name, value in full.items()}, into)
    equal(full, support.state_dict_of(model, destination=None, prefix="", keep_vars=False))
    raises(NotImplementedError, lambda: support.state_dict_of(model, keep_vars=True), "keep_vars")
    plain = models.Plain()
    equal(plain.state_dict(prefix="net."), support.state_dict_of(plain, prefix="net."))
    assert support.state_dict_of(plain, keep_vars=True)["inp.weight"].requires_grad


@check()
def checkpoint_round_trip_by_type() -> None:
    old = trained(FSDP2)
    state, optim = support.model_state_dict(old[0]), support.optim_state_dict(*old)
    new = trained(FSDP2, steps=1)
    support.load_model_state_dict(new[0], state)
    new[1].load_state_dict(support.optim_state_dict_to_load(*new, optim))
    equal(continue_training(*old, seed=1), continue_training(*new, seed=1))


@check()
def optimizer_state_gets_other_keys() -> None:
    model, optimizer = trained(FSDP2)
    named = support.full_optim_state_dict(model, optimizer)
    ids = support.rekey_optim_state_dict(named, support.OptimStateKeyType.PARAM_ID, model, optimizer)
    back = support.rekey_optim_state_dict(ids, support.OptimStateKeyType.PARAM_NAME, model, optimizer)
    assert back["state"].keys() == named["state"].keys()


@check()
def reading_leaves_the_optimizer_as_it_is() -> None:
    model, optimizer = trained(FSDP2, steps=0)
    assert support.full_optim_state_dict(model, optimizer, has_stepped=False)["state"] == {}
    assert support.read_optimizer_state(model, optimizer)["state"] == {}
    assert not optimizer.state


@check()
def other_models_keep_their_state_dict() -> None:
    model = DDP(models.BufferFree())
    state = support.model_state_dict(model)
    assert "module.0.weight" in state
    support.load_model_state_dict(model, {name: tensor + 1 for name, tensor in state.items()})


@check()
def missing_keys_are_only_seen_by_a_broadcast() -> None:
    """Why full state dicts are loaded from the first rank: else torch says that all keys matched."""
    model = wrapped(FSDP2)
    state = {name: value for name, value in support.full_state_dict(model).items() if name != "out.weight"}
    options = [StateDictOptions(full_state_dict=True, broadcast_from_rank0=broadcast) for broadcast in (False, True)]
    answer = set_model_state_dict(model, dict(state), options=options[0])
    assert not answer.missing_keys
    raises(RuntimeError, lambda: set_model_state_dict(model, dict(state), options=options[1]), "out.weight")


@check()
def optimizer_files_by_parameter_ids_are_refused() -> None:
    """What FM307 is about: the file loads with use_orig_params, and the next step fails."""
    for use_orig_params in (True, False):
        _, old = trained(FSDP1, use_orig_params=use_orig_params)
        model, optimizer = trained(FSDP2)
        if use_orig_params:
            optimizer.load_state_dict(old.state_dict())
            raises(RuntimeError, lambda m=model, o=optimizer: continue_training(m, o, 1), "mixed")
        else:
            raises(ValueError, lambda old=old, o=optimizer: o.load_state_dict(old.state_dict()), "size")


def local_files_go_on() -> None:
    """What each rank of FSDP1 saved as LOCAL_STATE_DICT, and of its optimizer, and what each rank of FSDP2 saves."""
    kind = fsdp1.StateDictType.LOCAL_STATE_DICT
    for orig in (True, False):
        old = trained(FSDP1, use_orig_params=orig)
        with FSDP.state_dict_type(old[0], kind):
            file = io.BytesIO()
            torch.save((old[0].state_dict(), old[1].state_dict()), file)
        file.seek(0)
        model_state, optim_state = torch.load(file, weights_only=False)
        new = trained(FSDP2, steps=1)
        support.load_local_state_dict(new[0], model_state)
        support.load_local_optim_state_dict(*new, optim_state)
        again = io.BytesIO()
        torch.save((new[0].state_dict(), new[1].state_dict()), again)
        expected = continue_training(*old, seed=1)
        equal(expected, continue_training(*new, seed=1))
        again.seek(0)
        model_state, optim_state = torch.load(again)
        other = trained(FSDP2, steps=1)
        support.load_local_state_dict(other[0], model_state)
        support.load_local_optim_state_dict(*other, optim_state)
        equal(expected, continue_training(*other, seed=1))


@check()
def files_of_a_rank_are_those_of_fsdp2() -> None:
    """Without the functions that read FSDP1's: plain torch, and an error where a file is not of FSDP2."""
    kind = fsdp1.StateDictType.LOCAL_STATE_DICT
    for orig in (True, False):
        old = trained(FSDP1, use_orig_params=orig)
        with FSDP.state_dict_type(old[0], kind):
            states = old[0].state_dict(), old[1].state_dict()
        new = trained(FSDP2)
        for state in states:
            raises(ValueError, lambda state=state: support.refuse_flat_state(state), "flat pieces")
        raises(RuntimeError, lambda new=new, state=states[0]: new[0].load_state_dict(state))
    new, file = trained(FSDP2), io.BytesIO()
    torch.save((new[0].state_dict(), new[1].state_dict()), file)
    file.seek(0)
    model_state, optim_state = torch.load(file)
    other = trained(FSDP2, steps=1)
    other[0].load_state_dict(support.refuse_flat_state(model_state), strict=False)
    other[1].load_state_dict(support.refuse_flat_state(optim_state))
    equal(continue_training(*new, seed=1), continue_training(*other, seed=1))
    support.refuse_flat_state(torch.optim.AdamW(new[0].parameters()).state_dict())


@check()
def local_files_of_two_ranks_go_on() -> None:
    local_files_go_on()


@check(world=4)
def local_files_of_four_ranks_go_on() -> None:
    local_files_go_on()


@check(world=4)
def optimizer_files_of_replicas_go_on() -> None:
    """Of the optimizer alone: FSDP1 refuses LOCAL_STATE_DICT over a device mesh."""
    pairs = []
    for v, steps in ((FSDP1, 2), (FSDP2, 1)):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        hybrid = v.ShardingStrategy.HYBRID_SHARD
        pairs.append(trained(v, steps, sharding_strategy=hybrid, device_mesh=mesh))
    old, new = pairs
    support.load_full_state_dict(new[0], fsdp1_full(*old)[0])
    support.load_local_optim_state_dict(*new, old[1].state_dict())
    equal(continue_training(*old, seed=1), continue_training(*new, seed=1))


@check()
def local_state_dicts_hold_flat_slices() -> None:
    """Under a parameter's name lies a slice of it, and without use_orig_params no name at all."""
    kind = fsdp1.StateDictType.LOCAL_STATE_DICT
    named, flat = (wrapped(FSDP1, use_orig_params=orig) for orig in (True, False))
    with FSDP.state_dict_type(named, kind), FSDP.state_dict_type(flat, kind):
        slices, flats = named.state_dict(), flat.state_dict()
    assert slices["inp.weight"].dim() == 1
    raises(RuntimeError, lambda: wrapped(FSDP2).load_state_dict(slices, strict=False))
    assert "_flat_param" in flats
    answer = wrapped(FSDP2).load_state_dict(flats, strict=False)
    assert len(answer.missing_keys) == len(list(models.Plain().parameters()))


def _strategy_by_name(name: str, shards: int, **given: Any) -> None:
    """A strategy shards and frees as FSDP1 did, on nodes of so many ranks."""
    old = wrapped(FSDP1, sharding_strategy=fsdp1.ShardingStrategy[name], **given)
    torch.manual_seed(5)
    new = models.Plain()
    with patch.object(torch.cpu, "device_count", return_value=shards):
        kwargs = support.strategy_kwargs(name, "cpu")
    blocks = [module for module in new.modules() if isinstance(module, Block)]
    for block in blocks:
        fully_shard(block, **kwargs)
    fully_shard(new, **kwargs)
    losses = [loss_of(model, batches(1)[0]) for model in (old, new)]
    stays = name in ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2")
    for block in blocks:
        assert all(isinstance(parameter, DTensor) is not stays for parameter in block.parameters())
    for loss in losses:
        loss.backward()
    equal(gradients(old), gradients(new))
    shape = {"NO_SHARD": (dist.get_world_size(), 1), "FULL_SHARD": (dist.get_world_size(),)}
    hybrid = (dist.get_world_size() // shards, shards)
    sharded = [parameter.device_mesh.shape for parameter in new.parameters() if isinstance(parameter, DTensor)]
    assert set(sharded) == {shape.get(name.replace("SHARD_GRAD_OP", "FULL_SHARD"), hybrid)}


@check()
def strategies_by_name() -> None:
    for name in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"):
        _strategy_by_name(name, 2)
    for unknown in ("full_shard", "", None):
        raises(ValueError, lambda name=unknown: support.strategy_kwargs(name, "cpu"), f"strategy: {unknown}")


@check(world=4)
def strategies_by_name_over_nodes() -> None:
    for name in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"):
        _strategy_by_name(name, 2)
    for name in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        _strategy_by_name(name, 2, device_mesh=mesh)


@check()
def meshes_of_strategies_that_keep_nothing_whole() -> None:
    mesh, two = init_device_mesh("cpu", (2,)), init_device_mesh("cpu", (1, 2), mesh_dim_names=("replicate", "shard"))
    for function in (support.strategy_mesh, support.sharding_mesh):
        assert function("FULL_SHARD", mesh) is mesh
        assert function(None, None) is None
        assert function("HYBRID_SHARD", two) is two
        assert function("SHARD_GRAD_OP", two).get_group() == two.get_group(0)
        assert function("HYBRID_SHARD", None, "cpu").shape == (2, 1)  # a node has one CPU
    assert support.mesh_of_group("NO_SHARD", None, "cpu").shape == (2, 1)
    # Those of a fully_shard beside it: what takes gradients of two meshes raises.
    assert support.resolve_mesh("cpu") == fsdp2_init._init_default_fully_shard_mesh()
    assert support.resolve_mesh("cpu", None, dist.group.WORLD) == support.group_mesh(dist.group.WORLD, "cpu")


# What is refused


@check()
def refusals_name_the_cure() -> None:
    mesh = init_device_mesh("cpu", (2,))
    strategies = support.ShardingStrategy
    raises(ValueError, lambda: wrapped(FSDP2, process_group=dist.group.WORLD, device_mesh=mesh), "not both")
    raises(ValueError, lambda: wrapped(FSDP2, ignored_modules=[], ignored_states=[]), "not both")
    hybrid = {"sharding_strategy": strategies.HYBRID_SHARD}
    raises(ValueError, lambda: wrapped(FSDP2, auto_wrap_policy=None, **hybrid), "device_mesh")
    raises(ValueError, lambda: wrapped(FSDP2, device_mesh=mesh, **hybrid), "(replicate, shard)")
    raises(TypeError, lambda: wrapped(FSDP2, process_group=dist.group.WORLD, **hybrid), "device_mesh")
    for strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
        # FSDP1 shards over no single group with them, nor over a mesh of one dimension.
        raises(ValueError, lambda s=strategy: support.mesh_of_group(s, dist.group.WORLD, "cpu"), "replicate_group")
        raises(ValueError, lambda s=strategy: support.strategy_mesh(s, mesh), "(replicate, shard)")
        raises(ValueError, lambda s=strategy: support.sharding_mesh(s, mesh), "(replicate, shard)")
        plain = {"process_group": dist.group.WORLD, "sharding_strategy": fsdp1.ShardingStrategy[strategy]}
        raises(ValueError, lambda p=plain: wrapped(FSDP1, **p), "Tuple")
    raises(TypeError, lambda: wrapped(FSDP2, process_group=(dist.group.WORLD, dist.group.WORLD)), "hybrid")
    low = support.MixedPrecision(torch.bfloat16, keep_low_precision_grads=True)
    raises(NotImplementedError, lambda: wrapped(FSDP2, mixed_precision=low), "keep_low_precision_grads")
    sharded = wrapped(FSDP2)
    raises(ValueError, lambda: support.shard_model(sharded, auto_wrap_policy=FSDP2.always_wrap_policy), "by hand")
    policy = FSDP2.CustomPolicy(lambda module: "yes")
    raises(ValueError, lambda: wrapped(FSDP2, auto_wrap_policy=policy), "False/True or a kwarg dict")
    policy = FSDP2.CustomPolicy(lambda module: {"no_such_argument": 1} if isinstance(module, Block) else False)
    raises(TypeError, lambda: wrapped(FSDP2, auto_wrap_policy=policy), "no_such_argument")


@check()
def units_are_counted() -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    support.logger.addHandler(handler)
    support.logger.setLevel(logging.INFO)
    wrapped(FSDP2)
    with pytest.warns(UserWarning, match="picked no module"):
        wrapped(FSDP2, auto_wrap_policy=FSDP2.size_based_auto_wrap_policy)
    assert lines == ["sharded units of Plain: 4", "sharded units of Plain: 1"]


@check()
def a_block_under_two_parents_trains() -> None:
    """FSDP1 wraps it under the first of them only, and fails in forward."""
    losses = []
    for classes in ((), {Block}, {Block, nn.Sequential}):
        torch.manual_seed(5)
        model: nn.Module = models.Shared()
        if classes:
            model = support.shard_model(model, auto_wrap_policy=FSDP2.ModuleWrapPolicy(classes))
        else:
            model = DDP(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
        seen = []
        for x in batches(3):
            loss = loss_of(model, x)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.append(loss.item())
        losses.append(seen)
    equal(losses[0], losses[1])
    equal(losses[0], losses[2])


@check()
def weights_that_are_tied_train_as_one_after_the_cure() -> None:
    """What FM409 says to do: both owners in one call."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Linear(8, 12, bias=False), nn.Linear(8, 12, bias=False)
            self.head.weight = self.embed.weight
            self.block = Block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.block(self.embed(x) + self.head(2 * x))

    losses = []
    for sharded in (False, True):
        torch.manual_seed(5)
        model: nn.Module = Net()
        if sharded:
            fsdp1.fully_shard([model.embed, model.head])
            fsdp1.fully_shard(model.block)
            fsdp1.fully_shard(model)
            assert model.embed.weight is model.head.weight
        else:
            model = DDP(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, foreach=False)
        losses.append(continue_training(model, optimizer, seed=0))
    equal(*losses)


@check()
def nothing_is_wrapped_outside_of_enable_wrap() -> None:
    layer = nn.Linear(2, 2)
    assert support.wrap(layer) is layer
    assert not isinstance(layer, FSDPModule)
    with support.enable_wrap(wrapper_cls=FSDP2.shard_model):
        raises(NotImplementedError, lambda: support.enable_wrap(wrapper_cls=FSDP2.shard_model).__enter__(), "nested")
        assert isinstance(support.wrap(layer), FSDPModule)


@check()
def what_is_ignored_is_moved_nowhere() -> None:
    """On the CPU nothing moves: it is looked at what would be moved to the device."""
    moved = []
    for v, where in ((FSDP1, fsdp1_init), (FSDP2, fsdp2_init)):
        model = models.Nested()
        names = {tensor: name for name, tensor in (*model.named_parameters(), *model.named_buffers())}
        with patch.object(where, "_move_states_to_device") as move:
            policy = v.ModuleWrapPolicy({Block})
            v.shard_model(model, auto_wrap_policy=policy, ignored_modules=[model.layers["a"]])
        moved.append({names[tensor] for call in move.call_args_list for tensors in call.args[:2] for tensor in tensors})
    assert moved[0] == moved[1]
    assert "layers.b.inner.scale" in moved[0]
    assert not [name for name in moved[0] if name.startswith("layers.a.")]


@check()
def cpu_offload_trains_alike() -> None:
    losses = [
        continue_training(*trained(FSDP2, cpu_offload=support.CPUOffload(offload)), seed=1) for offload in (False, True)
    ]
    equal(*losses)


@check()
def hooks_on_parameters_run_as_their_finding_says() -> None:
    """What FM424 warns of, after two backwards."""
    counts = []
    for v in (FSDP1, FSDP2):
        model = wrapped(v)
        seen = {"register_hook": 0, "register_post_accumulate_grad_hook": 0}

        def count(*_: Any, kind: str, seen: dict[str, int] = seen) -> None:
            seen[kind] += 1

        for parameter in model.parameters():
            for kind in seen:
                getattr(parameter, kind)(partial(count, kind=kind))
        for x in batches(2):
            loss_of(model, x).backward()
        counts.append(list(seen.values()))
    assert counts == [[0, 0], [0, 2 * len(list(models.Plain().parameters()))]]


@check()
def a_method_beside_forward_needs_to_be_registered() -> None:
    """What FM426 says: it raises under both, and trains as `forward` does once it is registered."""

    class Encoder(models.Plain):
        def encode(self, x: torch.Tensor) -> torch.Tensor:
            return self.forward(x)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)

    x = batches(1)[0]
    for v in (FSDP1, FSDP2):
        raises(Exception, partial(wrapped(v, Encoder).encode, x))
    losses = []
    for registered in (True, False):
        model = wrapped(FSDP2, Encoder)
        if registered:
            fsdp1.register_fsdp_forward_method(model, "encode")
        loss = (model.encode(x) if registered else model(x)).square().mean()
        loss.backward()
        losses.append([loss.item(), gradients(model)])
    equal(*losses)


@check()
def container_as_root_trains_through_its_units() -> None:
    """FSDP1's root had nothing to gather there, and `fully_shard` refuses it."""
    seen = []
    for v in (FSDP1, FSDP2):
        torch.manual_seed(5)
        container = nn.ModuleDict({"first": Block(), "second": Block()})
        model = v.shard_model(container, auto_wrap_policy=v.ModuleWrapPolicy({Block}))
        blocks = [module for name, module in model.named_modules() if name.endswith(("first", "second"))]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x in batches(3):
            loss = blocks[1](blocks[0](x.repeat(1, 4)[:, : models.WIDTH])).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.append((v, loss.item()))
    equal([loss for v, loss in seen if v is FSDP1], [loss for v, loss in seen if v is FSDP2])
    support.shard_model(nn.ModuleDict())
    given = nn.ModuleDict({"first": Block()})
    given.forward = given["first"].forward
    raises(ValueError, partial(support.shard_model, given), "does not support containers")


@check()
def what_fsdp1_refuses_is_refused() -> None:
    """A 0-dim parameter, and two dtypes in one unit: FSDP1 at the wrap, FSDP2 there or in its first forward."""

    class Scaled(models.Plain):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(1.0))

    class Mixed(models.Plain):
        def __init__(self) -> None:
            super().__init__()
            self.out.to(torch.bfloat16)

    for v in (FSDP1, FSDP2):
        raises(ValueError, lambda v=v: wrapped(v, Scaled), "scalar")
    raises(ValueError, lambda: wrapped(FSDP1, Mixed), "dtype")
    mixed = wrapped(FSDP2, Mixed)
    raises(AssertionError, lambda: mixed(batches(1)[0]), "dtype")


if __name__ == "__main__":
    run_all(CHECKS)
