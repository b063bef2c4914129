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
    (BY_NAME, f"strategy_kwargs(args.strategy, {FOUND})"),
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
    assert f"strategy_kwargs(args.strategy, {FOUND})" in text
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
    options = result.after["strategies.py"].partition("def strategy_of")[2]
    assert options.count(FOUND) == 2
    assert '"cuda"' not in options


def test_units_on_meta_are_emptied_on_the_accelerator() -> None:
    made = '    with torch.device("meta"):\n        net = args.net()\n'
    assert "reset_unit(net, torch.get_device_module().current_device())" in after(
        f"    torch.xpu\n{made}    return FSDP(net)\n"
    )


SHARD = code(
    """
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


    def shard(net):
        return FSDP(net)
    """
)
TRAIN = """\
import os
import torch
from shard import shard


def device_of(args):
    rank = int(os.environ["LOCAL_RANK"])
    if args.cpu:
        return "cpu"
    {name}
    return name


def train(net, args, rank):
    device = torch.device(device_of(args))
    net = net.to({device})
    return shard(net)
"""
NAMES = [
    'name = f"cuda:{rank}"',
    'name = "cuda:" + str(rank)',
    'name = "cuda:%d" % rank',
    'name = "cuda:{}".format(rank)',
]
SET = """\
    device = next(net.parameters()).device  # FSDP1 computed there
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return fully_shard(net)
"""


def sharded(name: str = NAMES[0], device: str = "device") -> str:
    files = {"shard.py": SHARD, "train.py": TRAIN.replace("{name}", name).replace("{device}", device)}
    return rewrite_files(files).after["shard.py"]


@pytest.mark.parametrize("name", NAMES)
def test_model_is_moved_in_another_function(name: str) -> None:
    assert sharded(name).endswith(SET)
    assert sharded(name, device="device_of(args)").endswith(SET)


@pytest.mark.parametrize("device", ["rank", "args.local_rank", "f'cuda:{rank}'", "torch.device('cuda', rank)"])
def test_model_is_moved_by_rank_in_another_function(device: str) -> None:
    assert sharded("name = 0", device).endswith(SET)


@pytest.mark.parametrize("name", ['name = "cuda"', 'name = "cuda:0"', "name = args.name", 'name = "cpu:0"'])
def test_model_is_where_each_rank_looks(name: str) -> None:
    assert sharded(name).endswith("def shard(net):\n    return fully_shard(net)\n")


def test_model_is_moved_and_the_device_is_set() -> None:
    name = f"{NAMES[0]}\n    torch.cuda.set_device(rank)"
    assert sharded(name).endswith("def shard(net):\n    return fully_shard(net)\n")


def test_model_is_moved_and_the_device_of_another_accelerator_is_set() -> None:
    name = 'torch.xpu.set_device(rank)\n    name = "xpu" if args.xpu else f"cuda:{rank}"'
    guarded = SET.replace('== "cuda"', 'not in ("cpu", "meta")').replace(
        "torch.cuda.", "torch.get_device_module(device)."
    )
    assert sharded(name).endswith(guarded)


def test_two_parts_of_a_model_are_in_one_place() -> None:
    text = """
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


    def shard(net):
        net.a = FSDP(net.a)
        net.b = FSDP(net.b)
        return net
    """
    files = {"shard.py": code(text), "train.py": TRAIN.replace("{name}", NAMES[0]).replace("{device}", "device")}
    after = rewrite_files(files).after["shard.py"]
    assert after.count("set_device") == 1
    assert "device = next(net.a.parameters()).device  # FSDP1 computed there\n" in after


MAIN = """

if __name__ == "__main__":
    train(Net(), Args(), 0)
"""


def test_device_that_nobody_sets() -> None:
    unused = code(
        """
        import torch


        def use(rank):
            torch.cuda.set_device(rank)
        """
    )
    files = {
        "shard.py": SHARD,
        "train.py": "import devices\n" + TRAIN.replace("{name}", NAMES[0]).replace("{device}", "device") + MAIN,
        "devices.py": unused,
    }
    assert rewrite_files(files).after["shard.py"].endswith(SET)
    files["train.py"] += "    devices.use(0)\n"
    assert "set_device" not in rewrite_files(files).after["shard.py"]


def test_script_beside_it_says_nothing() -> None:
    moved = code(
        """
        import torch
        import shared


        def test_it(net, rank):
            net.to(torch.device("cuda", rank))
        """
    )
    files = {
        "shared.py": "x = 1\n",
        "test_a.py": SHARD.replace("from", "import shared\nfrom", 1) + "\n\nshard(shared.x)\n",
        "test_b.py": moved,
    }
    assert "set_device" not in rewrite_files(files).after["test_a.py"]


CHOSEN = [
    pytest.param("rank if torch.cuda.is_available() else None", "torch.cuda.is_available()", "rank", id="None"),
    pytest.param(
        'torch.device("cpu") if args.cpu else torch.device("cuda", rank)',
        "not args.cpu",
        'torch.device("cuda", rank)',
        id="CPU",
    ),
    pytest.param("torch.cuda.current_device() if torch.cuda.is_available() else None", "", "", id="the current one"),
]


@pytest.mark.parametrize(("device", "test", "own"), CHOSEN)
def test_device_of_a_choice_is_set_where_there_is_one(device: str, test: str, own: str) -> None:
    """`set_device(None)` raises."""
    wraps = "\n".join(f"    {each} = FSDP({each}, device_id={device})" for each in ("net", "other"))
    text = rewrite(HEAD.replace("net", "net, other") + wraps + "\n").text
    line = f"    if {test}:\n        torch.cuda.set_device({own})\n"
    assert text.count("set_device") == text.count(line) == bool(test)


@pytest.mark.parametrize(
    ("device", "line"),
    [
        ('"mps:0"', ""),
        ('"cuda:0" if args.gpu else "mps"', "if torch.cuda.is_available():\n        torch.cuda.set_device(device)"),
    ],
)
def test_device_of_apple_is_not_set(device: str, line: str) -> None:
    text = rewrite(HEAD + f"    device = {device}\n    return FSDP(net, device_id=device)\n").text
    assert text.count("set_device") == bool(line)
    assert line in text


def test_device_that_a_function_chooses() -> None:
    """A mesh is of the device that it returns, which may be the CPU."""
    result = rewrite(
        "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy\n\n\n"
        "def chosen(rank):\n    if torch.cuda.is_available():\n        return torch.device(f'cuda:{rank}')\n"
        "    return torch.device('cpu')\n\n\n"
        "def shard(net, rank):\n"
        "    return FSDP(net, sharding_strategy=ShardingStrategy.NO_SHARD, device_id=chosen(rank))\n"
    )
    assert "init_device_mesh(chosen(rank).type, " in result.text


def test_a_mesh_or_a_group_that_only_run_time_knows() -> None:
    given = f"{BY_NAME}, device_mesh=args.mesh, process_group=args.group, device_id=torch.cuda.current_device()"
    assert (
        "    if args.mesh is not None:\n        fsdp_mesh = strategy_mesh(args.strategy, args.mesh)\n"
        '    else:\n        fsdp_mesh = mesh_of_group(args.strategy, args.group, "cuda")\n'
    ) in after(f"    return FSDP(net, {given})\n")
