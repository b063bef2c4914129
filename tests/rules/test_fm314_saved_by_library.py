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


PARTS = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net, shards):
    return FSDP(net) if shards else net


def save(net, path, shards):
    model = build(net, shards)
    if isinstance({asked}, FSDP):
        model.train()
    else:
        model.save_pretrained(path)
"""


@pytest.mark.parametrize(("asked", "is_found"), [("model.base.model", False), ("net.base", True)])
def test_the_other_way_of_a_test_for_a_wrapped_part(asked: str, is_found: bool) -> None:
    """There the program saves a model of which it knows that no part is sharded."""
    findings = [finding.rule for finding in rewrite(PARTS.format(asked=asked)).findings]
    assert ("FM314" in findings) is is_found


def test_a_model_that_is_wrapped_for_sure_has_no_other_way() -> None:
    body = "if isinstance(model.base, FSDP):\n        pass\n    else:\n        model.save_pretrained(path)"
    assert found(body) == [Level.MANUAL]
