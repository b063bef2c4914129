"""Starts a module on several gloo ranks, and reads what they wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests import forks

LIMIT_S = 240.0


def run(module: str, world: int, folder: Path, package: str = "tests.support") -> list[dict[str, Any]]:
    """The results of each rank. What counts is the end marker of each; a run without all of them is repeated once."""
    paths = [folder / f"rank{rank}.json" for rank in range(world)]
    log = folder / "log"
    command = ["-m", f"{package}.{module}", str(folder)]
    for _ in range(2):
        for path in (log, *paths):
            path.unlink(missing_ok=True)
        forks.run([forks.Job(command, str(forks.ROOT), world, str(log), LIMIT_S)], path=[folder])
        if all(path.exists() for path in paths):
            return [json.loads(path.read_text()) for path in paths]
    raise AssertionError(f"{module} did not finish on all of {world} ranks:\n{log.read_text()[-4000:]}")
