"""Starts a module with several gloo processes, and reads what they wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]


def run(module: str, world: int, folder: Path, package: str = "tests.support") -> list[dict[str, Any]]:
    """The results of each rank.

    gloo sometimes aborts when the interpreter exits, after all the work is done: what counts is the end marker of each
    rank, not the exit code, and a run without all of them is repeated once.
    """
    paths = [folder / f"rank{rank}.json" for rank in range(world)]
    log = ""
    for _ in range(2):
        for path in paths:
            path.unlink(missing_ok=True)
        done = subprocess.run(
            [*TORCHRUN, f"--nproc-per-node={world}", "-m", f"{package}.{module}", str(folder)],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
        )
        log = done.stdout
        if all(path.exists() for path in paths):
            return [json.loads(path.read_text()) for path in paths]
    raise AssertionError(f"{module} did not finish on all of {world} ranks:\n{log[-4000:]}")
