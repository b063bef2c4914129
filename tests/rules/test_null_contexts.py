"""A `with` around what the edits made `nullcontext()` of goes, and nothing that the user wrote so."""

from __future__ import annotations

import pytest

from ..helpers import code, rewrite

PROGRAM = """\
from contextlib import nullcontext

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard


def old(net):
    return FSDP(net)


def main(net, batch):
    model = fully_shard(net)
    is_fsdp = isinstance(model, FSDP)
    context = FSDP.summon_full_params(model) if is_fsdp else nullcontext()
    with context:
        print(model.weight)
"""


def test_a_block_that_enters_nothing_goes() -> None:
    text = rewrite(PROGRAM).text
    assert text.endswith(
        code(
            """
            def main(net, batch):
                model = fully_shard(net)
                print(model.weight)
            """
        )
    )
    assert "nullcontext" not in text


STAYS = {
    "what the user wrote": ("FSDP.summon_full_params(model) if is_fsdp else nullcontext()", "nullcontext()"),
    "what is entered twice": (
        "        print(model.weight)\n",
        "        print(model.weight)\n    with context:\n        print(net)\n",
    ),
    "what is named": ("with context:", "with context as entered:"),
    "what is entered beside another": ("with context:", "with context, net.lock:"),
    "what gives something": ("nullcontext()\n", "nullcontext(batch)\n"),
    "what may be another": ("    with context:", "    if batch:\n        context = net.lock\n    with context:"),
}


@pytest.mark.parametrize(("old", "new"), STAYS.values(), ids=STAYS)
def test_stays(old: str, new: str) -> None:
    assert old in PROGRAM
    text = rewrite(PROGRAM.replace(old, new)).text
    assert "with context" in text
    assert "nullcontext(" in text
