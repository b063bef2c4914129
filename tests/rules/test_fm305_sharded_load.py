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
    new = "read_sharded(model_state_dict=state, optimizer_key='o', storage_reader=reader)"
    assert flat(text).endswith(f"    return {new}\n")
    assert "load_sharded_optimizer_state_dict" not in text.split("def use(")[1]


READ_AND_LOADED = """\
    saved = load_sharded_optimizer_state_dict(state, "optim", reader{planner})
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, saved["optim"]))
"""
OPTIMIZER = "from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict"


@pytest.mark.parametrize("planner", [", planner", ", planner=planner", ""])
def test_what_is_read_is_loaded(planner: str) -> None:
    result = rewrite(HEAD.replace("IMPORT", OPTIMIZER) + READ_AND_LOADED.format(planner=planner))
    text = meaning(result.program)
    assert f"read_sharded(state, 'optim', reader{planner})" in text
    assert "planner=None)\n" not in result.text
    assert text.endswith(
        "set_optimizer_state_dict(model, optimizer, saved['optim'], options=StateDictOptions(strict=False))"
    )


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
        ALIAS,
        "dist_cp.save_state_dict(state, storage_writer=reader, coordinator_rank=0, no_dist=False)",
        "dist_cp.save(state, storage_writer=reader)",
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


def test_an_argument_that_torchs_function_does_not_take_is_left() -> None:
    imports = "from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict"
    text = "    return load_sharded_optimizer_state_dict(state, 'optimizer', reader, process_group=net.group)\n"
    result = rewrite(HEAD.replace("IMPORT", imports) + text)
    assert [f.level for f in result.findings if f.rule == "FM305"] == [Level.MANUAL]
    assert "read_sharded" not in result.text
