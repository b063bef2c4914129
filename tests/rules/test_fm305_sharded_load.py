"""FM305 and FM311: loading a sharded optimizer, and the old names of DCP's functions."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_noop, flat, meaning, rewrite

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
IMPORT


def use(net, state, reader, planner):
    model = FSDP(net)
"""


def after(imports: str, text: str) -> str:
    result = rewrite(HEAD.replace("IMPORT", imports) + f"    {text}\n")
    assert {finding.level for finding in result.findings} == {Level.REWRITTEN}
    return result.text


NOOP = [
    "import torch.distributed.checkpoint as dcp\ndcp.save({}, checkpoint_id='a')\n",
    "from other import load_sharded_optimizer_state_dict\nload_sharded_optimizer_state_dict({}, 'a', None)\n",
    "def load_state_dict(path):\n    return path\n\n\nload_state_dict('a')\n",
]


@pytest.mark.parametrize("text", NOOP)
def test_noop(text: str) -> None:
    check_noop(text)


LOADS = [
    ("from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict as load", "load"),
    ("import torch.distributed.checkpoint as dcp", "dcp.optimizer.load_sharded_optimizer_state_dict"),
    ("import torch.distributed.checkpoint as dist_cp", "dist_cp.load_sharded_optimizer_state_dict"),
]


@pytest.mark.parametrize(("imports", "name"), LOADS)
def test_sharded_optimizer(imports: str, name: str) -> None:
    text = after(imports, f"return {name}(model_state_dict=state, optimizer_key='o', storage_reader=reader)")
    new = "load_sharded_optim_state_dict(model_state_dict=state, optimizer_key='o', storage_reader=reader)"
    assert flat(text).endswith(f"    return {new}\n")
    assert "load_sharded_optimizer_state_dict" not in text.split("def use(")[1]


INTO_ITS_OWN = """\
    saved = load_sharded_optimizer_state_dict(model.state_dict(), "optim", reader{planner})
    own = saved{item}
    {loads}
"""
OPTIMIZER = "from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict"
READY = "    optimizer.load_state_dict(FSDP.optim_state_dict_to_load({}, {}, state))\n"


@pytest.mark.parametrize("item", ['["optim"]', '.get("optim")', '.pop("optim", None)'])
@pytest.mark.parametrize("planner", [", planner", ", planner=planner", ""])
def test_into_the_optimizers_own_state(item: str, planner: str) -> None:
    load = READY.format("model", "net.optimizer").replace("optimizer.", "net.optimizer.", 1).replace("state)", "own)")
    head = HEAD.replace("IMPORT", OPTIMIZER)
    result = rewrite(head + INTO_ITS_OWN.format(item=item, planner=planner, loads=load.strip()))
    text = meaning(result.text)
    assert "saved = {'optim': get_optimizer_state_dict(model, net.optimizer)}\n" in text
    chosen = "planner" if planner else "DefaultLoadPlanner(allow_partial_load=True)"
    assert f"dcp.load(saved, storage_reader=reader, planner={chosen})\n" in text
    assert text.endswith("set_optimizer_state_dict(model, net.optimizer, own, options=StateDictOptions(strict=False))")
    assert result.support == set()


@pytest.mark.parametrize("more", ["", "    print(weights)\n"])
def test_state_dict_that_only_told_how_the_model_is_sharded(more: str) -> None:
    reads = "    weights = model.state_dict()\n"
    reads += "    saved = load_sharded_optimizer_state_dict(weights, 'optim', reader)\n"
    load = READY.format("model", "net.optimizer").replace("state)", "saved['optim'])").replace(" opt", " net.opt", 1)
    result = rewrite(HEAD.replace("IMPORT", OPTIMIZER) + reads + more + load)
    assert "saved = {'optim': get_optimizer_state_dict(model, net.optimizer)}" in meaning(result.text)
    assert ("weights =" in result.text) is bool(more)


def test_optimizer_of_the_function_that_loads_it() -> None:
    reads = "    saved = load_sharded_optimizer_state_dict({}, 'optim', reader)\n"
    reads += "    resume(model, net.optimizer, saved['optim'])\n"
    load = f"\n\ndef resume(module, optimizer, state):\n{READY.format('module', 'optimizer')}"
    result = rewrite(HEAD.replace("IMPORT", OPTIMIZER) + reads + load)
    assert "    saved = {'optim': get_optimizer_state_dict(model, net.optimizer)}\n" in result.text
    assert "load_sharded_optim_state_dict" not in result.support


def test_optimizer_that_is_made_below() -> None:
    load = "    optimizer = torch.optim.AdamW(model.parameters())\n" + READY.format("model", "optimizer")
    text = INTO_ITS_OWN.format(item='["optim"]', planner="", loads=load.strip().replace("state)", "own)"))
    assert "load_sharded_optim_state_dict" in rewrite(HEAD.replace("IMPORT", OPTIMIZER) + text).support


ALIAS = "import torch.distributed.checkpoint as dist_cp"
OLD = "from torch.distributed._shard.checkpoint import save_state_dict, load_state_dict"
LOAD = "{}.load(state, storage_reader=reader)"
RENAMED = [
    (ALIAS, "dist_cp.save_state_dict(state, reader)", "dist_cp.save(state, storage_writer=reader)"),
    (
        ALIAS,
        "dist_cp.save_state_dict(state_dict=state, storage_writer=reader, planner=planner)",
        "dist_cp.save(state_dict=state, storage_writer=reader, planner=planner)",
    ),
    (
        ALIAS,
        "dist_cp.load_state_dict(state, reader, None, 0, False, planner)",
        "dist_cp.load(state, storage_reader=reader, process_group=None, planner=planner)",
    ),
    (
        ALIAS,
        "dist_cp.load_state_dict(state, storage_reader=reader, no_dist=False)",
        "dist_cp.load(state, storage_reader=reader)",
    ),
    (
        OLD,
        "load_state_dict(state_dict=state, storage_reader=reader)",
        "dcp.load(state_dict=state, storage_reader=reader)",
    ),
    (OLD, "save_state_dict(state, reader)", "dcp.save(state, storage_writer=reader)"),
]


@pytest.mark.parametrize(("imports", "before", "new"), RENAMED)
def test_new_names(imports: str, before: str, new: str) -> None:
    assert after(imports, before).endswith(f"    {new}\n")


NAMED = [
    "import torch.distributed.checkpoint as dist_cp",
    "import torch.distributed._shard.checkpoint as dist_cp",
    "from torch.distributed import checkpoint as dist_cp",
]


@pytest.mark.parametrize("name", NAMED)
def test_name_that_the_file_has_for_the_package(name: str) -> None:
    text = after(f"{OLD}\n{name}", "save_state_dict(state, dist_cp.FileSystemWriter(reader))")
    assert text.endswith("    dist_cp.save(state, storage_writer=dist_cp.FileSystemWriter(reader))\n")
    assert "dcp\n" not in text


def test_name_of_another_function_is_not_taken() -> None:
    text = after(OLD, "import torch.distributed.checkpoint as inner\n    save_state_dict(state, reader)")
    assert text.endswith("    dcp.save(state, storage_writer=reader)\n")


STAYS = [
    "dist_cp.load_state_dict(state, reader, no_dist=True)",
    "dist_cp.load_state_dict(state, reader, coordinator_rank=1)",
    "dist_cp.load_state_dict(*state)",
]


@pytest.mark.parametrize("text", STAYS)
def test_what_the_new_functions_did_not_always_have_stays(text: str) -> None:
    assert after(ALIAS, text).endswith(f"    {text}\n")
