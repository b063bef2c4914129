"""Options that two calls of one block are given the same stand there once."""

from __future__ import annotations

from ..helpers import flat, rewrite

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, FullOptimStateDictConfig
from torch.distributed.fsdp import FullStateDictConfig, StateDictType


def save(net, path{parameters}):
    model = FSDP(net)
"""
FULL = "options = StateDictOptions(full_state_dict=True)"


def body(lines: str, parameters: str = "") -> str:
    text = rewrite(HEAD.format(parameters=parameters) + lines).text
    return flat(text.partition("    model = fully_shard(net)\n")[2])


def test_two_calls_of_a_block() -> None:
    after = body("    print(path)\n    torch.save(model.state_dict(), path)\n    return model.state_dict()\n")
    assert after == (
        f"    print(path)\n    {FULL}\n    torch.save(get_model_state_dict(model, options=options), path)\n"
        "    return get_model_state_dict(model, options=options)\n"
    )


def test_two_calls_of_a_statement() -> None:
    after = body('    return {"one": model.state_dict(), "other": model.state_dict()}\n')
    assert after.startswith(f"    {FULL}\n    return {{")
    assert after.count("options=options") == 2


def test_one_call_keeps_them() -> None:
    assert "options=StateDictOptions(full_state_dict=True)" in body("    return model.state_dict()\n")


def test_calls_of_different_blocks_keep_them() -> None:
    lines = "    if path:\n        return model.state_dict()\n    return model.state_dict()\n"
    assert body(lines).count("options=StateDictOptions(full_state_dict=True)") == 2


def test_name_of_the_users_own() -> None:
    lines = "    print(options)\n    torch.save(model.state_dict(), path)\n    return model.state_dict()\n"
    assert body(lines, ", options").count("options=StateDictOptions(full_state_dict=True)") == 2


def test_name_that_the_context_has_for_them() -> None:
    after = body(
        "    optim = torch.optim.AdamW(model.parameters())\n    optim.step()\n"
        "    full = StateDictType.FULL_STATE_DICT\n"
        "    one, other = FullStateDictConfig(True, True), FullOptimStateDictConfig(True, True)\n"
        "    with FSDP.state_dict_type(model, full, one, other):\n"
        "        states = model.state_dict(), model.state_dict()\n"
        "        optim_state = FSDP.optim_state_dict(model, optim)\n"
        "    return states, optim_state\n"
    )
    assert after.count("StateDictOptions(") == 1
