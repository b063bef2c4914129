"""Starts a module on several gloo ranks, and reads what they wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.forks import ROOT, Job
from tests.forks import run as run_jobs

LIMIT_S = 600.0
"""Against a hang. On two idle cores the longest takes a quarter of it; other work beside it must not end it."""

Ranks = list[dict[str, Any]]
"""What each rank saw, by case."""


def run(module: str, worlds: Sequence[int], folder: Path, package: str = "tests.support") -> dict[int, Ranks]:
    """What was seen with each number of ranks, one after the other. A run that not all ranks end is repeated once."""
    command = ["-m", f"{package}.{module}", str(folder)]
    found: dict[int, Ranks] = {}
    for _ in range(2):
        missing = [world for world in worlds if world not in found]
        for path in (path for world in missing for path in _written(folder, world)):
            path.unlink(missing_ok=True)
        run_jobs([Job(command, str(ROOT), n, str(folder / f"log{n}"), LIMIT_S) for n in missing], path=[folder])
        for world in missing:
            if all(path.exists() for path in _written(folder, world)):
                found[world] = [json.loads(path.read_text()) for path in _written(folder, world)]
        if len(found) == len(worlds):
            return found
    world = next(world for world in worlds if world not in found)
    log = (folder / f"log{world}").read_text()
    raise AssertionError(f"{module} did not finish on all of {world} ranks:\n{log[-4000:]}")


def by_case(seen: Mapping[int, Ranks]) -> dict[str, list[Any]]:
    """What each rank saw, by case, where each case is for one number of ranks."""
    return {name: [rank.get(name) for rank in ranks] for ranks in seen.values() for name in ranks[0]}


def _written(folder: Path, world: int) -> list[Path]:
    return [folder / f"rank{rank}of{world}.json" for rank in range(world)]
