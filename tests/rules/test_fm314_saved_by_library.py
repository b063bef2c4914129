"""FM314: what a library saves of a sharded model by itself."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import rewrite

HEAD = """\
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType


def use(net, path, tokenizer):
    model = FSDP(net)
"""
FULL = "FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT)"

WRONG = [
    "model.save_pretrained(path)",
    "model.module.save_pretrained(path)",
    "model.push_to_hub(path)",
    "FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)\n    model.save_pretrained(path)",
    "with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n        model.save_pretrained(path)",
]
RIGHT = [
    "net.config.save_pretrained(path)",
    "tokenizer.save_pretrained(path)",
    "model.save_pretrained(path, state_dict=model.state_dict())",
    f"with {FULL}:\n        model.save_pretrained(path)",
    "with FSDP.summon_full_params(model):\n        model.save_pretrained(path)",
]


def found(body: str) -> list[Level]:
    return [finding.level for finding in rewrite(HEAD + f"    {body}\n").findings if finding.rule == "FM314"]


@pytest.mark.parametrize("body", WRONG)
def test_what_would_save_shards_is_found(body: str) -> None:
    assert found(body) == [Level.MANUAL]


@pytest.mark.parametrize("body", RIGHT)
def test_what_is_gathered_is_not(body: str) -> None:
    assert not found(body)
