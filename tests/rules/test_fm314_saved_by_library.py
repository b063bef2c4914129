"""FM314: what a library saves of a sharded model by itself."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import meaning, rewrite

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
    "model.llm.save_pretrained(path)",
    "model.module.encoders[0].save_pretrained(path)",
    "FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)\n    model.save_pretrained(path)",
    "with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n        model.save_pretrained(path)",
]
RIGHT = [
    "net.config.save_pretrained(path)",
    "tokenizer.save_pretrained(path)",
    "model.tokenizer.save_pretrained(path)",
    "model.llm.config.save_pretrained(path)",
    "path.llm.save_pretrained(path)",
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


PEFT = "from peft import get_peft_model\n" + HEAD
GATHERED = "state_dict=get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))"


@pytest.mark.parametrize(
    ("body", "after"),
    [
        ("model.save_pretrained(path)", f"model.save_pretrained(path, {GATHERED})"),
        ("model.module.save_pretrained(path)", f"model.save_pretrained(path, {GATHERED})"),
        (
            "model.save_pretrained(path, safe_serialization=False)",
            f"model.save_pretrained(path, safe_serialization=False, {GATHERED})",
        ),
        (
            "model.llm.save_pretrained(path)",
            f"model.llm.save_pretrained(path, {GATHERED.replace('model,', 'model.llm,')})",
        ),
    ],
)
def test_a_library_that_takes_a_state_dict_is_given_one(body: str, after: str) -> None:
    result = rewrite(PEFT + f"    {body}\n")
    assert meaning(result.text).endswith(f"    {after}")
    assert [f.level for f in result.findings if f.rule == "FM314"] == [Level.REVIEW]


def test_keys_that_a_hook_adds_are_read_by_the_models_own_function() -> None:
    """torch's looks each of them up as a parameter, and raises."""
    hook = "    net._register_state_dict_hook(lambda module, state, *_: state.update(version=1))\n"
    result = rewrite(PEFT + hook + "    model.save_pretrained(path)\n")
    assert result.text.endswith("    model.save_pretrained(path, state_dict=whole_state_dict(model))\n")


def test_what_may_be_no_sharded_model_is_read_by_any_models_function() -> None:
    text = "import peft\n" + PARTS[: PARTS.index("    if")] + "    model.save_pretrained(path)\n"
    assert rewrite(text).text.endswith("    model.save_pretrained(path, state_dict=whole_state_dict(model))\n")


@pytest.mark.parametrize(
    "body",
    [
        "model.push_to_hub(path)",
        "model.save_pretrained(*path)",
        "if dist.get_rank() == 0:\n        model.save_pretrained(path)",
        "with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n        model.save_pretrained(path)",
    ],
)
def test_what_cannot_be_given_one_is_a_persons(body: str) -> None:
    text = "import torch.distributed as dist\n" + PEFT + f"    {body}\n"
    assert [f.level for f in rewrite(text).findings if f.rule == "FM314"] == [Level.MANUAL]


def test_a_library_that_passes_over_a_state_dict_is_not_given_one() -> None:
    text = "import diffusers\n" + PEFT + "    model.save_pretrained(path)\n"
    assert [f.level for f in rewrite(text).findings if f.rule == "FM314"] == [Level.MANUAL]
