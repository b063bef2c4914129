"""Variables that only a rewritten construct read go with it; a call that makes the value is still made."""

from __future__ import annotations

import pytest

from ..helpers import code, rewrite

HEAD = """\
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy

"""

STAYS = {
    "read elsewhere": "keep = cfg.peft\nmodel = FSDP(net, use_orig_params=keep)\nprint(keep)",
    "read in a function inside": (
        "keep = cfg.peft\ndef ask():\n    return keep\nmodel = FSDP(net, use_orig_params=keep)"
    ),
    "what is looked up": "keep = getattr(cfg, 'peft')\nmodel = FSDP(net, use_orig_params=keep)",
    "an item": "keep = cfg[0]\nmodel = FSDP(net, use_orig_params=keep)",
    "a name given in an expression": "print(keep := cfg.peft)\nmodel = FSDP(net, use_orig_params=keep)",
    "of several": "keep, other = cfg.peft, 1\nmodel = FSDP(net, use_orig_params=keep)\nprint(other)",
    "a loop's": "for keep in (True, False):\n    print(cfg)\nmodel = FSDP(net, use_orig_params=keep)",
    "the branch of a condition that asks": (
        "keep = False\nif ask():\n    keep = True\nmodel = FSDP(net, use_orig_params=keep)"
    ),
    "what the function shows": "keep = cfg.peft\nmodel = FSDP(net, use_orig_params=keep)\nprint(locals())",
    "what vars shows": "keep = cfg.peft\nmodel = FSDP(net, use_orig_params=keep)\nprint(vars())",
    "global": "global keep\nkeep = cfg.peft\nmodel = FSDP(net, use_orig_params=keep)",
    "never read": "keep = cfg.peft\nmodel = FSDP(net, use_orig_params=True)",
}


def function(body: str) -> str:
    lines = body.splitlines()
    return "def wrap(net, cfg):\n" + "".join(f"    {line}\n" for line in (*lines, "return model"))


@pytest.mark.parametrize("body", STAYS.values(), ids=STAYS)
def test_stays(body: str) -> None:
    text = rewrite(HEAD + function(body)).text
    assert sum("keep" in line for line in text.splitlines()) == sum("keep" in line for line in body.splitlines()) - (
        "params=keep" in body
    )


GOES = {
    "attributes": "keep = cfg.lora or cfg.peft\nmodel = FSDP(net, use_orig_params=keep)",
    "a lookup with a default": "keep = cfg.get('peft', None)\nmodel = FSDP(net, use_orig_params=keep)",
    "an item by its name": "keep = cfg['lora']['peft']\nmodel = FSDP(net, use_orig_params=keep)",
    "what is only asked": "keep = isinstance(cfg, dict)\nmodel = FSDP(net, use_orig_params=keep)",
    "with its type": "keep: bool = cfg.peft\nmodel = FSDP(net, use_orig_params=keep)",
    "one by the other": "peft = cfg.peft\nkeep = not peft\nmodel = FSDP(net, use_orig_params=keep)",
    "set twice": "keep = {'a': 1}\nkeep = None\nmodel = FSDP(net, use_orig_params=keep)",
    "chosen": (
        "if cfg.peft:\n    keep = True\nelif cfg.lora:\n    keep = None\nelse:\n    keep = False\n"
        "model = FSDP(net, use_orig_params=keep)"
    ),
    "changed": "keep = False\nif cfg.peft:\n    keep = True\nmodel = FSDP(net, use_orig_params=keep)",
}


@pytest.mark.parametrize("body", GOES.values(), ids=GOES)
def test_goes(body: str) -> None:
    assert rewrite(HEAD + function(body)).text.endswith(
        code("def wrap(net, cfg):\n    model = fully_shard(net)\n    return model\n")
    )


def test_a_device_goes() -> None:
    body = "torch.cuda.set_device(cfg.rank)\nkeep = torch.device(f'cuda:{cfg.rank}')\nmodel = FSDP(net, device_id=keep)"
    text = rewrite("import torch\n" + HEAD + function(body)).text
    assert text.endswith(function("torch.cuda.set_device(cfg.rank)\nmodel = fully_shard(net)"))


RUNS = {
    "a call": ("keep = cfg.peft()\nmodel = FSDP(net, use_orig_params=keep)", "cfg.peft()\nmodel = fully_shard(net)"),
    "one of its values is a call's": (
        "keep = False\nif cfg.ask:\n    keep = ask(\n        cfg\n    )\nmodel = FSDP(net, use_orig_params=keep)",
        "if cfg.ask:\n    ask(\n        cfg\n    )\nmodel = fully_shard(net)",
    ),
    "with its type": (
        "keep: bool = (cfg.peft())  # asks\nmodel = FSDP(net, use_orig_params=keep)",
        "(cfg.peft())  # asks\nmodel = fully_shard(net)",
    ),
}


def test_variables_of_another_object_do_not_count() -> None:
    text = rewrite(HEAD + function("print(vars(cfg))\nkeep = cfg.peft\nmodel = FSDP(net, use_orig_params=keep)")).text
    assert text.endswith(function("print(vars(cfg))\nmodel = fully_shard(net)"))


@pytest.mark.parametrize(("body", "after"), RUNS.values(), ids=RUNS)
def test_what_a_call_does_is_still_done(body: str, after: str) -> None:
    assert rewrite(HEAD + function(body)).text.endswith(function(after))


def test_what_another_function_calls_the_same_stays() -> None:
    other = "def other(cfg):\n    keep = cfg.peft\n    return keep\n\n\n"
    result = rewrite(HEAD + other + function("keep = cfg.peft\nmodel = FSDP(net, use_orig_params=keep)"))
    assert result.text.count("keep = cfg.peft") == 1


def test_comment_about_it_goes_and_others_stay() -> None:
    body = "# net.lr = 1\n# LoRA freezes some\nkeep = cfg.peft\n\n# now shard\nmodel = FSDP(net, use_orig_params=keep)"
    text = rewrite(HEAD + function(body)).text
    assert "# LoRA freezes some" not in text
    assert "    # net.lr = 1\n" in text, "code that is switched off is about itself"
    assert "    # now shard\n    model = fully_shard(net)\n" in text


KINDS = """\
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType


def load(net, path, cfg):
    model = FSDP(net)
    if {test}:
        FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=False)){more}
    return model
"""


@pytest.mark.parametrize("test", ["cfg.ddp and cfg.fsdp", "not cfg.plain", "cfg.mode == 'fsdp'"])
def test_condition_with_nothing_left_under_it_goes(test: str) -> None:
    assert rewrite(KINDS.format(test=test, more="")).text.endswith("    model = fully_shard(net)\n    return model\n")


@pytest.mark.parametrize(
    ("test", "more"),
    [
        ("ask(cfg)", ""),
        ("cfg.fsdp", "\n    else:\n        print(model)"),
        ("cfg.fsdp", "\n        print(model)"),
        ("(kept := cfg.fsdp)", ""),
    ],
)
def test_condition_that_does_more_stays(test: str, more: str) -> None:
    assert f"    if {test}:\n" in rewrite(KINDS.format(test=test, more=more)).text


MEMBERS = """
from enum import Enum

from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel as FSDP


class Prefetch(str, Enum):
    PRE = "pre"
    NONE = "none"

    def to_torch(self):
        table = {Prefetch.PRE: BackwardPrefetch.BACKWARD_PRE, Prefetch.NONE: None}
        if self not in table:
            raise ValueError(f"unknown: {self}")
        return table[self]


def wrap(net, cfg):
    prefetch = Prefetch(cfg.prefetch).to_torch()
    return FSDP(net, backward_prefetch=prefetch)
"""


def test_what_a_member_of_an_enum_stands_for_goes() -> None:
    member = MEMBERS.replace("Prefetch(cfg.prefetch).", "Prefetch.PRE.")
    assert "def wrap(net, cfg):\n    return fully_shard(net)\n" in rewrite(member).text
    assert (
        "    Prefetch.PRE.to_torch()\n"
        in rewrite(member.replace("        table = {", "        print(self)\n        table = {")).text
    )
    assert "    Prefetch(cfg.prefetch).to_torch()\n" in rewrite(MEMBERS).text  # which refuses an unknown one


@pytest.mark.parametrize("lookup", ["getattr(ShardingStrategy, cfg.mode)", "ShardingStrategy[cfg.mode]"])
def test_a_strategy_that_is_looked_up_for_nothing_still_refuses_unknown_names(lookup: str) -> None:
    body = f"torch.cuda.set_device(0)\nkeep = {lookup}\nmodel = FSDP(net, sharding_strategy=keep, device_mesh=cfg.mesh)"
    text = rewrite("import torch\n" + HEAD + function(body)).text
    assert f"    {lookup}  # an unknown name is an error\n" in text
    assert "keep" not in text
