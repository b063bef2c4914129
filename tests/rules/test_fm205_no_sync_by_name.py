"""`getattr(model, "no_sync", nothing)` (FM205)."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_marked, rewrite

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
NOT_SEEN = [
    "return getattr(model, 'no_sync')",
    "return getattr(model, 'no_sync', something)",
    "return getattr(model, 'no_sync', x)",
    "model(x).backward()\n    return getattr(model, 'no_sync', nothing)",
]


@pytest.mark.parametrize("lines", NOT_SEEN)
def test_what_is_not_seen_to_do_nothing_raises_for_a_model_that_may_not_be_wrapped(lines: str) -> None:
    check_marked(PLAIN + f"    {lines}\n", "FM205", Level.MANUAL)
    assert {level for _, level, _ in rewrite(HEAD + f"    {lines}\n").summary} == {"rewritten"}


@pytest.mark.parametrize("default", ["nothing", "nullcontext"])
def test_a_default_that_does_nothing(default: str) -> None:
    result = rewrite(PLAIN + f"    with getattr(model, 'no_sync', {default})():\n        return model(x)\n")
    way = f"partial(no_sync, model) if isinstance(model, FSDPModule) else getattr(model, 'no_sync', {default})"
    assert f"with ( {way} )():" in " ".join(result.text.split())
    assert result.support == {"no_sync"}
    assert {level for _, level, _ in result.summary} == {"rewritten"}


@pytest.mark.parametrize("default", ["nothing", "something", "x.context"])
def test_the_default_stays_for_a_model_that_is_not_sharded(default: str) -> None:
    """The helper is called without an FSDP model too: one process, and accumulation."""
    body = f"    context = getattr(model, 'no_sync', {default})\n    with context():\n        model(x).backward()\n"
    result = rewrite(HEAD + body)
    way = f"partial(no_sync, model) if isinstance(model, FSDPModule) else getattr(model, 'no_sync', {default})"
    assert f"context = ( {way} )" in " ".join(result.text.split())


def test_a_line_for_each_part_where_one_is_too_long() -> None:
    body = "    context_of_this_turn = getattr(model, 'no_sync', context_that_does_nothing_at_all)\n"
    parts = [
        "partial(no_sync, model)",
        "if isinstance(model, FSDPModule)",
        "else getattr(model, 'no_sync', context_that_does_nothing_at_all)",
    ]
    lines = "".join(f"        {part}\n" for part in parts)
    assert rewrite(HEAD + body).text.endswith(f"    context_of_this_turn = (\n{lines}    )\n")
