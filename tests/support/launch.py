"""Starts a module on several gloo ranks, and reads what they wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.forks import AT_ONCE, ROOT, Job
from tests.forks import run as run_jobs

LIMIT_S = 600.0
"""Against a hang. On two idle cores the longest takes a quarter of it; other work beside it must not end it."""

Ranks = list[dict[str, Any]]
"""What each rank saw, by case."""


def run(
    module: str, worlds: Sequence[int], folder: Path, package: str = "tests.support", parts: int = 2
) -> dict[int, Ranks]:
    """What was seen with each number of ranks, one after the other. A run that not all ranks end is repeated once.

    In several parts: those of two ranks run side by side. Cases that make groups of ranks need more of them, since each
    group has threads, and no torch gives all of them back.
    """
    found: dict[tuple[int, int], Ranks] = {}
    wanted = [(world, part) for world in worlds for part in range(parts)]
    for _ in range(2):
        missing = [each for each in wanted if each not in found]
        for path in (path for world, part in missing for path in _written(folder, world, part)):
            path.unlink(missing_ok=True)
        command = ["-m", f"{package}.{module}", str(folder)]
        jobs = [Job([*command, f"{part}/{parts}"], str(ROOT), n, _log(folder, n, part), LIMIT_S) for n, part in missing]
        run_jobs(jobs, AT_ONCE, path=[folder])
        for world, part in missing:
            paths = _written(folder, world, part)
            if all(path.exists() for path in paths):
                found[world, part] = [json.loads(path.read_text()) for path in paths]
        if len(found) == len(wanted):
            return {world: _together([found[world, part] for part in range(parts)]) for world in worlds}
    world, part = next(each for each in wanted if each not in found)
    log = Path(_log(folder, world, part)).read_text()
    raise AssertionError(f"{module} did not finish on all of {world} ranks:\n{log[-4000:]}")


def _together(parts: Sequence[Ranks]) -> Ranks:
    """What each rank saw in all parts."""
    return [{case: seen for part in of_rank for case, seen in part.items()} for of_rank in zip(*parts, strict=True)]


def by_case(seen: Mapping[int, Ranks]) -> dict[str, list[Any]]:
    """What each rank saw, by case, where each case is for one number of ranks."""
    return {name: [rank.get(name) for rank in ranks] for ranks in seen.values() for name in ranks[0]}


def _written(folder: Path, world: int, part: int) -> list[Path]:
    return [folder / f"rank{rank}of{world}part{part}.json" for rank in range(world)]


def _log(folder: Path, world: int, part: int) -> str:
    return str(folder / f"log{world}part{part}")
