"""An `if` in which the edits left only another becomes one `if`."""

from __future__ import annotations

import pytest

from ..helpers import rewrite

PROGRAM = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main(net, rank, verbose, path):
    full = None
{block}
    return FSDP(net, limit_all_gathers=full)
"""

MERGED = {
    """\
    if rank == 0:
        full = {}

        if verbose:
            print(path)""": """\
    if rank == 0 and verbose:
        print(path)""",
    """\
    if (rank == 0):
        full = {}
        if (verbose):  # loud
            print('''a
        b''')""": """\
    if (rank == 0) and (verbose):
        # loud
        print('''a
        b''')""",
}
STAYS = {
    "another branch": """\
    if rank == 0:
        full = {}
        if verbose:
            print(path)
    else:
        full = 1""",
    "a branch inside": """\
    if rank == 0:
        full = {}
        if verbose:
            print(path)
        else:
            print(rank)""",
    "a test that would need brackets": """\
    if rank == 0:
        full = {}
        if verbose or path:
            print(path)""",
    "a comment between the tests": """\
    if rank == 0:
        full = {}
        # tell it
        if verbose:
            print(path)""",
    "nested before": """\
    if rank == 0:
        if verbose:
            print(path)""",
    "more is left": """\
    if rank == 0:
        full = {}
        if verbose:
            print(path)
        print(rank)""",
}


@pytest.mark.parametrize(("before", "after"), MERGED.items())
def test_becomes_one(before: str, after: str) -> None:
    text = rewrite(PROGRAM.format(block=before)).text
    assert text.endswith(f"rank, verbose, path):\n{after}\n    return fully_shard(net)\n")


@pytest.mark.parametrize("block", STAYS.values(), ids=STAYS)
def test_stays(block: str) -> None:
    text = rewrite(PROGRAM.format(block=block)).text
    assert "rank == 0:" in text
    assert " and " not in text
