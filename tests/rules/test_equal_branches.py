"""Branches that the edits made the same as the `else` go, where at most one of the tests can hold."""

from __future__ import annotations

import pytest

from ..helpers import rewrite

TEXT = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


def wrap(net, kind, more):
{chain}
    return FSDP(net, sharding_strategy=strategy, device_id=torch.cuda.current_device())
"""
FULL, HYBRID = "strategy = ShardingStrategy.FULL_SHARD", "strategy = ShardingStrategy.HYBRID_SHARD"


def chain(*branches: tuple[str, str]) -> str:
    """The tests with what stands below each; an empty one is the `else`."""
    heads = [f"if {branches[0][0]}:", *(f"elif {test}:" if test else "else:" for test, _ in branches[1:])]
    return "\n".join(f"    {head}\n        {body}" for head, (_, body) in zip(heads, branches, strict=True))


def heads_after(text: str) -> list[str]:
    """The lines of the chain that the program has afterwards."""
    lines = [line.strip() for line in rewrite(TEXT.format(chain=text)).text.splitlines()]
    return [line for line in lines if line.startswith(("if ", "elif ", "else:"))]


GOES = {
    "the first": (
        chain(('kind == "full"', FULL), ('kind == "hybrid"', HYBRID), ("", FULL)),
        ['if kind == "hybrid":', "else:"],
    ),
    "the one between": (
        chain(('kind == "hybrid"', HYBRID), ('kind == "full"', FULL), ("", FULL)),
        ['if kind == "hybrid":', "else:"],
    ),
    "both": (
        chain(("kind == 1", FULL), ("kind == 2", FULL), ("kind == 3", HYBRID), ("", FULL)),
        ["if kind == 3:", "else:"],
    ),
}
STAYS = {
    "tests that may both hold": chain(("kind == 1", FULL), ("more == 2", HYBRID), ("", FULL)),
    "one literal twice": chain(("kind == 1", FULL), ("kind == 1", HYBRID), ("", FULL)),
    "numbers that are the same": chain(("kind == 1", FULL), ("kind == 0x1", HYBRID), ("", FULL)),
    "a test of another kind": chain(("kind", FULL), ("kind == 2", HYBRID), ("", FULL)),
    "what a call gives": chain(("more() == 1", FULL), ("more() == 2", HYBRID), ("", FULL)),
    "another line below": chain(("kind == 1", f"{FULL}\n        print(kind)"), ("kind == 2", HYBRID), ("", FULL)),
    "a comment": chain(("kind == 1", f"{FULL}  # the usual"), ("kind == 2", HYBRID), ("", FULL)),
    "a comment above the next": chain(("kind == 1", FULL), ("kind == 2", HYBRID), ("", FULL)).replace(
        "    elif", "    # two\n    elif"
    ),
    "no else": chain(("kind == 1", FULL), ("kind == 2", HYBRID)).replace("    if", f"    {FULL}\n    if", 1),
}


@pytest.mark.parametrize(("before", "after"), GOES.values(), ids=GOES)
def test_goes(before: str, after: list[str]) -> None:
    assert heads_after(before) == after


@pytest.mark.parametrize("before", STAYS.values(), ids=STAYS)
def test_stays(before: str) -> None:
    after = heads_after(before)
    assert after == [line.strip() for line in before.splitlines() if line.strip().startswith(("if ", "elif ", "else:"))]


def test_what_no_edit_wrote_is_the_users() -> None:
    text = chain(("kind == 1", "more = None"), ("kind == 2", "more = 1"), ("", "more = None"))
    assert heads_after(f"{text}\n    {FULL}") == ["if kind == 1:", "elif kind == 2:", "else:"]
