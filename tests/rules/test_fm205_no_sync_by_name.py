"""`getattr(model, "no_sync", nothing)` (FM205)."""

from __future__ import annotations

import pytest

from codemods.vocabulary import Level

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


@pytest.mark.parametrize(
    "lines",
    [
        "return getattr(model, 'no_sync')",
        "return getattr(model, 'no_sync', something)",
        "return getattr(model, 'no_sync', x)",
        "model(x).backward()\n    return getattr(model, 'no_sync', nothing)",
    ],
)
def test_what_is_not_seen_to_do_nothing_is_reported(lines: str) -> None:
    check_marked(HEAD + f"    {lines}\n", "FM205", Level.MANUAL)


@pytest.mark.parametrize("default", ["nothing", "nullcontext"])
def test_a_default_that_does_nothing(default: str) -> None:
    result = rewrite(HEAD + f"    with getattr(model, 'no_sync', {default})():\n        return model(x)\n")
    assert "    with partial(no_sync, model)():\n" in result.text
    assert result.support == {"no_sync"}
    assert {level for _, level, _ in result.summary} == {"rewritten"}
