"""FM312: --checkpoint-format dcp."""

from __future__ import annotations

import pytest

from codemods.api import Level
from fsdp_migrate.pipeline import Options

from ..helpers import Result, meaning, rewrite

DCP = Options(checkpoint_format="dcp")
HEAD = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def use(net, optimizer, path, rank):
    model = FSDP(net)
"""
CONTEXT = "    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True)):\n"


def written(text: str, options: Options | None = DCP) -> Result:
    return rewrite(HEAD + text, options)


def body(text: str) -> str:
    return written(text).text.split("    model = fully_shard(net)\n")[1]


SAVE = f"""\
{CONTEXT}        state = model.state_dict()
        optim_state = FSDP.optim_state_dict(model, optimizer)
    if rank == 0:
        torch.save({{"model": state, "optimizer": optim_state, "step": 1}}, path)
"""


def test_a_file_stays_one() -> None:
    text = written(SAVE, None).text
    assert '        torch.save({"model": state, "optimizer": optim_state, "step": 1}, path)\n' in text
    assert "cpu_offload=True" in text


def test_every_rank_saves() -> None:
    assert body(SAVE) == (
        "    state = get_model_state_dict(model)\n"
        "    optim_state = get_optimizer_state_dict(model, optimizer)\n"
        '    dcp.save({"model": state, "optimizer": optim_state, "step": 1}, checkpoint_id=path)\n'
    )


GUARDS = ["dist.get_rank() == 0", "rank <= 0", "not rank", "is_main_process()"]


@pytest.mark.parametrize("guard", GUARDS)
def test_guards(guard: str) -> None:
    save = "        print(path)\n        torch.save(state, f=path)\n    return 1\n"
    assert body(f"    state = model.state_dict()\n    if {guard}:\n{save}") == (
        f"    state = get_model_state_dict(model)\n    if {guard}:\n        print(path)\n"
        "    dcp.save(state, checkpoint_id=path)\n    return 1\n"
    )


def test_dict_over_several_lines() -> None:
    text = """\
    state = model.state_dict()
    if rank == 0:
        print(path)
        torch.save(
            {
                "model": state,
                "step": 1,
            },
            path,
        )
"""
    after = """\
    state = get_model_state_dict(model)
    if rank == 0:
        print(path)
    dcp.save(
        {
            "model": state,
            "step": 1,
        },
        checkpoint_id=path,
    )
"""
    assert body(text) == after


def test_legacy_optimizer_call() -> None:
    text = "    torch.save(FSDP.full_optim_state_dict(model, optimizer, rank0_only=False), path)\n"
    assert body(text) == "    dcp.save(get_optimizer_state_dict(model, optimizer), checkpoint_id=path)\n"


def test_loading() -> None:
    text = """\
    saved = torch.load(path, map_location="cpu")
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        model.load_state_dict(saved["model"])
        o = FSDP.optim_state_dict_to_load(model, optimizer, saved["optimizer"])
    optimizer.load_state_dict(o)
    model.load_state_dict(torch.load(path), strict=False)
"""
    assert meaning(body(text)) == meaning(
        """
        saved = load_dcp(path, model)
        set_model_state_dict(model, saved["model"])
        set_optimizer_state_dict(model, optimizer, saved["optimizer"], options=StateDictOptions(strict=False))
        set_model_state_dict(model, load_dcp(path, model), options=StateDictOptions(strict=False))
        """
    )


STAYS = [
    "    torch.save(optimizer, path)\n",
    "    net.other.load_state_dict(torch.load(path))\n",
    "    state = model.state_dict()\n    print(state)\n    torch.save(state, path)\n",
    "    state = {k: v.half() for k, v in model.state_dict().items()}\n    torch.save(state, path)\n",
]


@pytest.mark.parametrize("text", STAYS)
def test_what_is_not_only_saved_stays(text: str) -> None:
    assert "torch.save" in body(text) or "torch.load" in body(text)
    assert "FM312" not in {finding.rule for finding in written(text).findings}


OBSTACLES = [
    ("    if rank == 0:\n        path = path + '.pt'\n        torch.save(state, path)\n", "only made on one rank"),
    ("    if rank == 0:\n        torch.save(state, path)\n        print(path)\n", "goes on with it"),
    ("    if rank == 0 and path:\n        torch.save(state, path)\n", "asks for more than the rank"),
    ("    if rank == 0:\n        if path:\n            torch.save(state, path)\n", "more than one condition"),
    ("    if rank == 0:\n        torch.save(state, path)\n    else:\n        print(path)\n", "more than one condition"),
    ("    torch.save(state, path, pickle_protocol=4)\n", "more than a state dict and a path"),
]


@pytest.mark.parametrize(("text", "words"), OBSTACLES)
def test_what_only_one_rank_can_save_needs_a_person(text: str, words: str) -> None:
    result = written("    state = model.state_dict()\n" + text)
    found = [finding for finding in result.findings if finding.rule == "FM312"]
    assert [finding.level for finding in found] == [Level.MANUAL]
    assert words in found[0].message
    assert "full_state_dict=True" in result.text
    assert "torch.save(" in result.text


def test_guarded_save_over_lines_further_out() -> None:
    text = (
        "    state = model.state_dict()\n    if rank == 0:\n        print(rank)\n        torch.save(\n  state, path)\n"
    )
    assert body(text).endswith("        print(rank)\n    dcp.save(\n  state, checkpoint_id=path)\n")


def test_path_that_is_not_the_first_argument() -> None:
    text = "    model.load_state_dict(torch.load(map_location='cpu', f=path))\n"
    assert "set_model_state_dict(model, load_dcp(path, model))" in body(text)
