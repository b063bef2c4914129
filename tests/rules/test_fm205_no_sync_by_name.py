"""`getattr(model, "no_sync", nothing)` (FM205)."""

from __future__ import annotations

import pytest

from ..helpers import rewrite

HEAD = """\
from contextlib import contextmanager, nullcontext
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


@contextmanager
def nothing():
    yield


@contextmanager
def something():
    print("in")
    yield


def sample(net, x):
    model = FSDP(net)
"""


@pytest.mark.parametrize("call", ["getattr(x.meter, 'no_sync', nullcontext)", "getattr(model, 'config', nullcontext)"])
def test_something_else_stays(call: str) -> None:
    result = rewrite(HEAD + f"    x.meter = 1\n    return {call}\n")
    assert f"    return {call}\n" in result.text


PLAIN = HEAD.replace("FSDP(net)", "FSDP(net) if x.sharded else net.cuda()")
LOOKED_UP = [
    "return getattr(model, 'no_sync')",
    "return getattr(model, 'no_sync', something)",
    "return getattr(model, 'no_sync', x)",
    "model(x).backward()\n    return getattr(model, 'no_sync', None)",
]


@pytest.mark.parametrize("lines", LOOKED_UP)
def test_a_model_that_may_not_be_wrapped_is_looked_at_as_before(lines: str) -> None:
    asked = lines.partition("return ")[2]
    way = f"partial(unsynced, model) if isinstance(model, FSDPModule) else {asked}"
    for head in (PLAIN, PLAIN.replace("model = FSDP", "other = FSDP").replace("(net, x)", "(net, x, model)")):
        result = rewrite(head + f"    {lines}\n")
        assert way in " ".join(result.text.split())
        assert {level for _, level, _ in result.summary} == {"rewritten"}


@pytest.mark.parametrize("default", ["nothing", "nullcontext"])
def test_a_default_that_does_nothing(default: str) -> None:
    result = rewrite(PLAIN + f"    with getattr(model, 'no_sync', {default})():\n        return model(x)\n")
    way = f"partial(unsynced, model) if isinstance(model, FSDPModule) else getattr(model, 'no_sync', {default})"
    assert f"with ( {way} )():" in " ".join(result.text.split())
    assert result.support == {"unsynced"}
    assert {level for _, level, _ in result.summary} == {"rewritten"}


@pytest.mark.parametrize("default", ["nothing", "something", "x.context"])
def test_the_default_stays_for_a_model_that_is_not_sharded(default: str) -> None:
    """The helper is called without an FSDP model too: one process, and accumulation."""
    body = f"    context = getattr(model, 'no_sync', {default})\n    with context():\n        model(x).backward()\n"
    result = rewrite(HEAD + body)
    way = f"partial(unsynced, model) if isinstance(model, FSDPModule) else getattr(model, 'no_sync', {default})"
    assert f"context = ( {way} )" in " ".join(result.text.split())


def test_a_line_for_each_part_where_one_is_too_long() -> None:
    body = "    context_of_this_turn = getattr(model, 'no_sync', context_that_does_nothing_at_all)\n"
    parts = [
        "partial(unsynced, model)",
        "if isinstance(model, FSDPModule)",
        "else getattr(model, 'no_sync', context_that_does_nothing_at_all)",
    ]
    lines = "".join(f"        {part}\n" for part in parts)
    assert rewrite(HEAD + body).text.endswith(f"    context_of_this_turn = (\n{lines}    )\n")


def test_asked_of_a_model_that_is_not_followed() -> None:
    """Its class is asked first: the context below it takes any model, and any other answers as before."""
    helper = (
        "\n\n@contextmanager\ndef unsynchronised(model):\n    if hasattr(model, 'no_sync'):\n"
        "        with model.no_sync():\n            yield\n    else:\n        yield\n"
    )
    result = rewrite(HEAD + f"    return model\n{helper}")
    assert "    if isinstance(model, FSDPModule) or hasattr(model, 'no_sync'):\n" in result.text
    assert "FM205" in {rule for rule, level, _ in result.summary if level == "rewritten"}
