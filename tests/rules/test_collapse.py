"""Choices whose sides the edits made the same are one of them; others stay as they are."""

from __future__ import annotations

import pytest

from ..helpers import rewrite

HEAD = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"

STAYS = {
    "sides that differ": "model._fsdp_wrapped_module.a if isinstance(model, FSDP) else model.b",
    "a test that does more": "model._fsdp_wrapped_module.a if ask(model) else model.a",
    "what is taken once or twice": "step(model) or step(model._fsdp_wrapped_module)",
    "was the same before": "model.a if isinstance(model, FSDP) else model.a",
}
GOES = {
    "model.net if not isinstance(model, FSDP) else model._fsdp_wrapped_module.net": "model.net",
    "model._fsdp_wrapped_module if isinstance(model, FSDP) else model": "model",
    "isinstance(model.a, Net) or (isinstance(model, FSDP) and isinstance(model._fsdp_wrapped_module.a, Net))": (
        "isinstance(model.a, Net)"
    ),
    "hasattr(model, '_fsdp_wrapped_module') and ask(model._fsdp_wrapped_module, Net) or ask(model, Net)".replace(
        "ask", "isinstance"
    ): "isinstance(model, Net)",
}


def written(expression: str) -> str:
    text = rewrite(f"{HEAD}def ask(net):\n    model = FSDP(net)\n    return {expression}\n").text
    return text.partition("    return ")[2].strip()


@pytest.mark.parametrize("expression", STAYS.values(), ids=STAYS)
def test_stays(expression: str) -> None:
    assert len(written(expression).split()) > 2


@pytest.mark.parametrize(("before", "after"), GOES.items())
def test_goes(before: str, after: str) -> None:
    assert written(before) == after


def test_test_around_a_choice() -> None:
    test = "(\n        isinstance(m, Net)\n        or isinstance(m._fsdp_wrapped_module, Net)\n    )"
    body = f"    if {test} and m.training:\n        print(m)\n"
    text = rewrite(f"{HEAD}def ask(net):\n    m = FSDP(net)\n{body}").text
    assert "    if (\n        isinstance(m, Net)\n    ) and m.training:" in text


def test_two_spellings_of_one_value_are_the_users() -> None:
    text = HEAD_OF_SPELLINGS + '    return "model" ".module" if model.module.ready else "model.module"\n'
    assert '"model" ".module" if model.ready else "model.module"' in rewrite(text).text


HEAD_OF_SPELLINGS = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def use(net):
    model = FSDP(net)
"""


BRANCHES = """\
    if cfg.fsdp:
        name = model._fsdp_wrapped_module.head
    else:
        name = model.head
    return name
"""


def test_an_if_whose_branches_say_the_same_goes() -> None:
    text = rewrite(f"{HEAD}def ask(net, cfg):\n    model = FSDP(net)\n{BRANCHES}").text
    assert text.endswith("    model = fully_shard(net)\n    name = model.head\n    return name\n")


ABOVE = """\
def is_sharded(model):
    return isinstance(model, FSDP)


def ask(net, cfg):
    model = FSDP(net)
    inner = model
    if {test}:
        inner = model.module
    return inner
"""


@pytest.mark.parametrize("test", ["cfg.fsdp", "is_sharded(model)", "isinstance(model, FSDP)"])
def test_an_if_that_says_what_stands_above_goes(test: str) -> None:
    text = rewrite(HEAD + ABOVE.format(test=test)).text
    assert text.endswith("    model = fully_shard(net)\n    inner = model\n    return inner\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cfg.fsdp", "cfg.ask()"),
        ("cfg.fsdp:", "cfg.fsdp:  # sharded"),
        ("    inner = model\n    if", "    inner = model\n    print(inner)\n    if"),
        ("model.module\n", "model.module\n        print(inner)\n"),
        ("    return inner", "    else:\n        inner = net\n    return inner"),
    ],
)
def test_an_if_that_says_more_than_what_stands_above_stays(old: str, new: str) -> None:
    assert "        inner = model\n" in rewrite(HEAD + ABOVE.format(test="cfg.fsdp").replace(old, new)).text


def test_a_device_is_only_asked_for() -> None:
    branches = (
        "    if torch.cuda.is_available():\n        m = FSDP(net, device_id=0)\n    else:\n        m = FSDP(net)\n"
    )
    text = rewrite(f"import torch\n{HEAD}def ask(net):\n    torch.cuda.set_device(0)\n{branches}    return m\n").text
    assert text.endswith("    torch.cuda.set_device(0)\n    m = fully_shard(net)\n    return m\n")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("        name = model.head", "        # the head\n        name = model.head", "    # the head\n    {}\n"),
        ("cfg.fsdp:", "cfg.fsdp:  # sharded", "    # sharded\n    {}\n"),
        ("module.head\n", "module.head  # of the module\n", "    {}  # of the module\n"),
        ("= model.head\n", "= model.head  # of the model\n", "    {}  # of the model\n"),
    ],
)
def test_a_comment_in_one_branch_stays(old: str, new: str, said: str) -> None:
    text = rewrite(f"{HEAD}def ask(net, cfg):\n    model = FSDP(net)\n{BRANCHES.replace(old, new)}").text
    assert text.endswith(f"    model = fully_shard(net)\n{said.format('name = model.head')}    return name\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cfg.fsdp", "cfg.ask()"),
        (":\n", ":  # one or the other\n"),
        ("head\n", "head  # one or the other\n"),
        ("        name = model.head", "        name = model.head\n        print(name)"),
        ("else:", "elif cfg.other:"),
    ],
)
def test_an_if_that_says_more_stays(old: str, new: str) -> None:
    text = rewrite(f"{HEAD}def ask(net, cfg):\n    model = FSDP(net)\n{BRANCHES.replace(old, new)}").text
    assert text.count("name = model.head") == 2
