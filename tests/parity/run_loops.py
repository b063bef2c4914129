"""Runs every program before and after its rewrite, in one process group, and writes what both saw.

Where FSDP1 is stale, the program runs with a model that is not sharded as well. Of the program that uses what could be
left over, only the rewritten one is run.

usage: torchrun -m tests.parity.run_loops FOLDER PART; FOLDER holds `LOOP/before.py` and `LOOP/after.py`
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.distributed.fsdp import FullyShardedDataParallel

from fsdp_migrate.probe.redirect import redirect_cuda_to_cpu

from ..support import models
from ..support.harness import loaded, run_all
from .leftovers import FUNCTIONS
from .loops import LOOPS, Loop


def raised(function: str, folder: Path) -> dict[str, str]:
    """How a function of the rewritten program of leftovers fails."""
    try:
        getattr(loaded(folder / "leftovers" / "after.py"), function)()
    except Exception as error:
        return {"raised": f"{type(error).__name__}: {error}"}
    return {"raised": ""}


def attributes() -> dict[str, list[str]]:
    """What FSDP1 gives to a model that it wraps, when it is made and when it is trained."""
    model = FullyShardedDataParallel(models.Plain())
    model(torch.ones(2, 8)).sum().backward()
    return {"names": sorted(vars(model).keys() - vars(torch.nn.Module()).keys())}


def run(loop: Loop, folder: Path) -> dict[str, Any]:
    sides = ("before", "after", "unsharded") if loop.is_stale else ("before", "after")
    return {name: loaded(folder / loop.folder / f"{name}.py").train() for name in sides}


if __name__ == "__main__":
    sys.modules["models"] = models
    redirect_cuda_to_cpu(2)
    folder = Path(sys.argv[1])
    left = {function: (2, partial(raised, function, folder)) for function in FUNCTIONS}
    run_all({"attributes": (2, attributes)} | left | {loop.name: (2, partial(run, loop, folder)) for loop in LOOPS})
