"""FM101: strategy, offload, mesh, device, initial state, and the arguments that go."""

from __future__ import annotations

import pytest

from codemods.vocabulary import Level

from ..helpers import check_transformed, code, meaning, rewrite

HEAD = """\
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffload,
    FullyShardedDataParallel as FSDP,
    ShardingStrategy,
)


def wrap(model, args, mesh, rank, group):
"""


def body(text: str) -> str:
    """What stands in the function after the rewrite of one whose body this is."""
    return rewrite(HEAD + text).text.split("def wrap(model, args, mesh, rank, group):\n")[1]


PLAIN = "    return fully_shard(model)\n"

DROPPED = [
    "use_orig_params=True",
    "use_orig_params=args.use_orig_params",
    "limit_all_gathers=True",
    "limit_all_gathers=False",
    "forward_prefetch=True",
    "forward_prefetch=False",
    "backward_prefetch=BackwardPrefetch.BACKWARD_PRE",
    "process_group=None",
    "device_mesh=None",
    "device_id=None",
    "sync_module_states=False",
    "mixed_precision=None",
    "cpu_offload=None",
    "cpu_offload=CPUOffload()",
    "cpu_offload=CPUOffload(offload_params=False)",
    "cpu_offload=CPUOffload(False)",
    "sharding_strategy=None",
    "sharding_strategy=ShardingStrategy.FULL_SHARD",
    "ignored_modules=None",
    "ignored_states=None",
    "param_init_fn=None",
    "device_id=torch.cuda.current_device()",
]


@pytest.mark.parametrize("argument", DROPPED)
def test_argument_that_needs_no_replacement(argument: str) -> None:
    result = rewrite(HEAD + f"    return FSDP(model, {argument})\n")
    assert result.text.endswith(PLAIN)
    assert [level for _, level, _ in result.summary] == ["rewritten"]


def test_all_dropped_arguments_are_named() -> None:
    result = rewrite(HEAD + "    return FSDP(model, use_orig_params=True, limit_all_gathers=True)\n")
    assert "no longer needed: limit_all_gathers, use_orig_params" in result.findings[0].message


REVIEWED = [
    ("backward_prefetch=BackwardPrefetch.BACKWARD_POST", "memory and overlap may differ"),
    ("backward_prefetch=None", "memory and overlap may differ"),
    ("forward_prefetch=args.prefetch", "is dropped"),
    ("cpu_offload=CPUOffload(offload_params=True)", "CPU tensors"),
]


@pytest.mark.parametrize(("argument", "words"), REVIEWED)
def test_what_differs_without_changing_what_is_trained_is_said(argument: str, words: str) -> None:
    result = rewrite(HEAD + f"    return FSDP(model, {argument})\n")
    (found,) = result.findings
    assert found.level is Level.REVIEW
    assert words in found.message


ARGUMENTS = [
    ("sharding_strategy=ShardingStrategy.SHARD_GRAD_OP", "reshard_after_forward=False"),
    ("None, ShardingStrategy.SHARD_GRAD_OP", "reshard_after_forward=False"),
    ("cpu_offload=CPUOffload(offload_params=True)", "offload_policy=CPUOffloadPolicy()"),
    ("cpu_offload=CPUOffload(True)", "offload_policy=CPUOffloadPolicy()"),
    (
        "cpu_offload=CPUOffload(offload_params=args.offload)",
        "offload_policy=CPUOffloadPolicy() if args.offload else OffloadPolicy()",
    ),
    ('device_mesh=mesh["dp"]', 'mesh=mesh["dp"]'),
    ('device_mesh=init_device_mesh("cuda", (8,))', 'mesh=init_device_mesh("cuda", (8,))'),
    (
        'device_mesh=init_device_mesh("cuda", mesh_shape=(8,), mesh_dim_names=("dp",))',
        'mesh=init_device_mesh("cuda", mesh_shape=(8,), mesh_dim_names=("dp",))',
    ),
]


@pytest.mark.parametrize(("before", "after"), ARGUMENTS)
def test_argument_with_a_counterpart(before: str, after: str) -> None:
    assert meaning(body(f"    return FSDP(model, {before})\n")) == meaning(f"return fully_shard(model, {after})")


def test_arguments_go_to_every_unit() -> None:
    head = HEAD.replace(
        "\n\n\ndef", "\nfrom torch.distributed.fsdp.wrap import ModuleWrapPolicy\nfrom net import Block\n\n\ndef"
    )
    call = "auto_wrap_policy=ModuleWrapPolicy({Block}), sharding_strategy=ShardingStrategy.SHARD_GRAD_OP"
    text = rewrite(head + f"    return FSDP(model, {call})\n").text
    assert "            fully_shard(module, reshard_after_forward=False)\n" in text
    assert "    return fully_shard(model, reshard_after_forward=False)\n" in text


def test_long_calls_are_broken_one_argument_a_line() -> None:
    call = "sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, cpu_offload=CPUOffload(offload_params=args.offload)"
    offload = "offload_policy=CPUOffloadPolicy() if args.offload else OffloadPolicy()"
    lines = ["model", "reshard_after_forward=False", offload]
    inner = "".join(f"        {line},\n" for line in lines)
    assert body(f"    return FSDP(model, {call})\n") == f"    return fully_shard(\n{inner}    )\n"


SUPPORT = [
    "sharding_strategy=ShardingStrategy.NO_SHARD",
    "sharding_strategy=ShardingStrategy.HYBRID_SHARD",
    "sharding_strategy=ShardingStrategy._HYBRID_SHARD_ZERO2",
    "sharding_strategy=ShardingStrategy[args.strategy]",
    "sharding_strategy=ShardingStrategy(args.strategy)",
    "sharding_strategy=getattr(ShardingStrategy, args.strategy)",
    "sharding_strategy=args.strategy",
    "sharding_strategy=ShardingStrategy.FULL_SHARD if args.full else ShardingStrategy.SHARD_GRAD_OP",
    "cpu_offload=CPUOffload(offload_params=True) if args.offload else None",
    "cpu_offload=args.offload",
    "device_mesh=mesh",
    'device_mesh=init_device_mesh("cuda", (2, 4))',
    "device_mesh=mesh[args.dim]",
    "process_group=group",
    "process_group=(group, group)",
    "sync_module_states=args.sync",
    "ignored_modules=[model.head]",
    "ignored_states=[model.weight]",
    "ignored_parameters=[model.weight]",
    "param_init_fn=lambda module: module.to_empty(device=rank)",
]


@pytest.mark.parametrize("argument", SUPPORT)
def test_what_only_run_time_knows_goes_through_the_support_module(argument: str) -> None:
    result = rewrite(HEAD + f"    return FSDP(model, {argument})\n")
    assert result.text.endswith(f"    return shard_model(model, {argument})\n")
    assert result.support >= {"shard_model"}
    assert "ShardingStrategy" not in argument or "ShardingStrategy" in result.support


def test_strategy_that_is_a_parameter_stays_one() -> None:
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


        def wrap(model, strategy=ShardingStrategy.SHARD_GRAD_OP):
            return FSDP(model, sharding_strategy=strategy)


        wrap(net)
        """
    )
    result = rewrite(text)
    assert result.support == {"ShardingStrategy", "shard_model"}
    assert "    return shard_model(model, sharding_strategy=strategy)\n" in result.text


def test_strategy_in_a_constant() -> None:
    text = code(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy

        STRATEGY = ShardingStrategy.SHARD_GRAD_OP


        def wrap(model):
            print(STRATEGY)
            return FSDP(model, sharding_strategy=STRATEGY)
        """
    )
    result = rewrite(text)
    assert "    return fully_shard(model, reshard_after_forward=False)\n" in result.text
    assert result.support == {"ShardingStrategy"}


DEVICES = [
    pytest.param("device_id=rank", "    torch.cuda.set_device(rank)\n" + PLAIN, id="rank"),
    pytest.param("device_id=0", "    torch.cuda.set_device(0)\n" + PLAIN, id="number"),
    pytest.param(
        'device_id=torch.device("cuda", rank)',
        '    torch.cuda.set_device(torch.device("cuda", rank))\n' + PLAIN,
        id="device",
    ),
    pytest.param(
        "device_id=rank, sync_module_states=True",
        code(
            """
                torch.cuda.set_device(rank)
                model.to(rank)
                for tensor in chain(model.parameters(), model.buffers()):  # sync_module_states
                    dist.broadcast(tensor.detach(), src=0)
                return fully_shard(model)
            """
        ),
        id="and sync_module_states",
    ),
    pytest.param(
        'device_id=torch.device("cpu")',
        '    cpu_mesh = init_device_mesh("cpu", (dist.get_world_size(),))\n'
        "    return fully_shard(model, mesh=cpu_mesh)\n",
        id="cpu",
    ),
]


@pytest.mark.parametrize(("argument", "after"), DEVICES)
def test_device(argument: str, after: str) -> None:
    wanted = after if after.startswith(" ") else "".join(f"    {line}\n" for line in after.splitlines())
    assert body(f"    return FSDP(model, {argument})\n") == wanted


@pytest.mark.parametrize("call", ["torch.cuda.set_device(rank)", "torch.accelerator.set_device_index(rank)"])
def test_device_that_is_set_above_is_not_set_again(call: str) -> None:
    text = body(f"    {call}\n    return FSDP(model, device_id=rank)\n")
    assert text == f"    {call}\n" + PLAIN


def test_device_that_is_set_below_is_set_above_too() -> None:
    below = "    torch.cuda.set_device(rank)\n"
    text = body("    model = FSDP(model, device_id=rank)\n" + below + "    return model\n")
    assert text == below + "    fully_shard(model)\n" + below + "    return model\n"


def test_sync_module_states() -> None:
    check_transformed(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel


        def wrap(net):
            return FullyShardedDataParallel(net.cuda(), sync_module_states=True)
        """,
        """
        from itertools import chain

        import torch.distributed as dist
        from torch.distributed.fsdp import fully_shard


        def wrap(net):
            model = net.cuda()
            for tensor in chain(model.parameters(), model.buffers()):  # sync_module_states
                dist.broadcast(tensor.detach(), src=0)
            return fully_shard(model)
        """,
    )
