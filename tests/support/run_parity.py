"""Runs every case on FSDP1 and on the support module, in one process group, and writes what differed.

usage: torchrun -m tests.support.run_parity FOLDER PART, with `fsdp2_support` on the path
"""

from __future__ import annotations

from functools import partial
from typing import Any

from .cases import CASES, Case
from .harness import run_all
from .observe import compare, count_collectives
from .vocabularies import FSDP1, FSDP2


def compare_vocabularies(case: Case) -> dict[str, Any]:
    builds = [lambda v=v: case.wrap(v, case.make()) for v in (FSDP1, FSDP2)]
    return compare(*builds, case.optimizer, case.seed_by_rank, case.input_dtype)


if __name__ == "__main__":
    count_collectives()
    run_all({case.name: (case.world, partial(compare_vocabularies, case)) for case in CASES})
