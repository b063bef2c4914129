"""FM101: the kind of device that a mesh is made for, and the device that is set."""

from __future__ import annotations

import pytest

from ..helpers import code, flat, rewrite, rewrite_files

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


def wrap(net, args, group, mesh, rank):
"""

BY_NAME = "sharding_strategy=ShardingStrategy[args.strategy]"
NO_SHARD = "sharding_strategy=ShardingStrategy.NO_SHARD"
HYBRID = "auto_wrap_policy=args.policy, sharding_strategy=ShardingStrategy.HYBRID_SHARD"
FOUND = "torch.accelerator.current_accelerator().type"

OTHER = [
    pytest.param("    kind = 'xpu' if torch.xpu.is_available() else 'cuda'\n", id="module"),
    pytest.param('    kind = "npu" if hasattr(torch, "npu") else "cuda"\n', id="name"),
    pytest.param('    place = f"xpu:{rank}"\n', id="name with an index"),
    pytest.param("    torch.accelerator.set_device_index(rank)\n", id="any"),
]
CALLS = [
    (NO_SHARD, f'init_device_mesh({FOUND}, (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard"))'),
    (HYBRID, "devices = torch.accelerator.device_count()"),
    (BY_NAME, f"strategy_mesh(args.strategy, device_type={FOUND})"),
    (f"{BY_NAME}, device_mesh=mesh", f"strategy_mesh(args.strategy, mesh, {FOUND})"),
    (f"{BY_NAME}, process_group=group", f"mesh_of_group(args.strategy, group, {FOUND})"),
    (f"{NO_SHARD}, process_group=group", f"replicate_mesh({FOUND}, group)"),
]


def after(text: str) -> str:
    return flat(rewrite(HEAD + text).text)


@pytest.mark.parametrize("above", OTHER)
@pytest.mark.parametrize(("given", "made"), CALLS)
def test_program_that_also_runs_on_another_accelerator(above: str, given: str, made: str) -> None:
    text = after(f"{above}    return FSDP(net, {given})\n")
    named = made.replace("(dist.get_world_size(), 1)", "shape")
    assert made in text or named in text


@pytest.mark.parametrize(("given", "made"), CALLS)
@pytest.mark.parametrize("word", ['"an xpu"', "args.xpu", '"cuda"'])
def test_program_of_cuda_alone(given: str, made: str, word: str) -> None:
    text = after(f"    place = {word}, torch.cuda\n    return FSDP(net, {given})\n")
    assert "fully_shard(" in text
    assert "accelerator" not in text


@pytest.mark.parametrize("device", ["torch.cuda.current_device()", '"cuda"', 'f"cuda:{rank}"'])
def test_device_that_is_named_is_of_cuda(device: str) -> None:
    text = after(f"    {device}, torch.xpu\n    return FSDP(net, {NO_SHARD}, device_id={device})\n")
    assert 'init_device_mesh("cuda", ' in text


@pytest.mark.parametrize("index", ["0", "int(rank)", "rank", "torch.xpu.current_device()"])
def test_index_is_one_of_any_accelerator(index: str) -> None:
    text = after(f"    torch.xpu\n    return FSDP(net, {BY_NAME}, device_id={index})\n")
    assert f"device_type={FOUND}" in text
    assert "torch.cuda" not in text
    sets = "current_device" not in index
    assert (f"torch.get_device_module().set_device({index})\n" in text) is sets


@pytest.mark.parametrize(
    "made", ['torch.device("cuda" if args.gpu else "cpu", rank)', "torch.device(args.device)", "torch.device(kind())"]
)
def test_device_of_the_program_is_asked(made: str) -> None:
    for word in ("torch.cuda", "torch.xpu"):
        text = after(f"    {word}\n    device = {made}\n    return FSDP(net, {HYBRID}, device_id=device)\n")
        assert "devices = torch.get_device_module(device).device_count()" in text
        assert 'init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard"))' in text


def test_device_that_was_given_is_set_on_its_own_kind() -> None:
    text = after("    torch.xpu\n    device = torch.device(args.device)\n    return FSDP(net, device_id=device)\n")
    assert "torch.get_device_module(device).set_device(device)\n" in text


def test_option_asks_the_accelerator_where_it_stands() -> None:
    files = {
        "strategies.py": code(
            """
            from torch.distributed.fsdp import ShardingStrategy


            def strategy_of(mode):
                if mode == "no":
                    return ShardingStrategy.NO_SHARD
                return ShardingStrategy.HYBRID_SHARD
            """
        ),
        "train.py": HEAD.replace("import torch\n", "import torch\nfrom strategies import strategy_of\n")
        + "    torch.xpu\n"
        + "    return FSDP(net, auto_wrap_policy=args.policy, sharding_strategy=strategy_of(args.mode))\n",
    }
    result = rewrite_files(files)
    assert all('"cuda"' not in text for path, text in result.after.items() if path != "fsdp2_support.py")


def test_units_on_meta_are_emptied_on_the_accelerator() -> None:
    made = '    with torch.device("meta"):\n        net = args.net()\n'
    assert "reset_unit(net, torch.get_device_module().current_device())" in after(
        f"    torch.xpu\n{made}    return FSDP(net)\n"
    )
