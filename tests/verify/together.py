"""`run_check` of many programs at once: its scratch copies, its probe and its judgement, with forks for torchrun."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from fsdp_migrate.verify import CheckRequest, ParityReport
from fsdp_migrate.verify.checks.comparison import Comparison
from fsdp_migrate.verify.launch import Run, command
from fsdp_migrate.verify.observation import Observation
from fsdp_migrate.verify.report import Failure
from fsdp_migrate.verify.run import compare_observations, wants_transplant
from fsdp_migrate.verify.scratch import copy_tree
from tests.forks import Job, run
from tests.verify.runs import RANKS, outcome_of


def check_together(requests: Mapping[Path, CheckRequest]) -> dict[Path, ParityReport | Failure]:
    """What each comparison says. The runs lie in the folder that is its key: `original`, `rewritten`, `floor`."""
    _run([(home, request, which) for home, request in requests.items() for which in RUNS])
    moved = [home for home in requests if _transplants(home, requests[home])]
    _run([(home, requests[home], "transplanted") for home in moved])
    return {home: _report(home, request, home in moved) for home, request in requests.items()}


RUNS = ("original", "rewritten", "floor")


def _run(planned: list[tuple[Path, CheckRequest, str]]) -> None:
    """As in a check, a run in which native code ended a rank, mostly a thread of gloo's, is made once more."""
    run([_job(request, home, which) for home, request, which in planned], RANKS)
    crashed = [plan for plan in planned if "Fatal Python error" in _log(plan[0], plan[2]).read_text(errors="replace")]
    for home, _, which in crashed:
        shutil.rmtree(home / which)
    if crashed:
        run([_job(request, home, which) for home, request, which in crashed], RANKS)


def _log(home: Path, which: str) -> Path:
    return home / which / "log"


def _job(request: CheckRequest, home: Path, which: str) -> Job:
    place = home / which
    planned = Run(
        "rewritten" if which in ("rewritten", "transplanted") else "original",
        which,
        place / "records",
        place / "scratch",
        perturb=1 if which == "floor" else None,
        save_init=home / "weights" if which == "floor" else None,
        load_init=home / "weights" if which == "transplanted" else None,
    )
    copy_tree(request.tree(planned.side), planned.scratch)
    words = command(request, planned)
    probe = words[words.index("fsdp_migrate.probe") - 1 :]
    return Job(probe, str(planned.scratch / request.cwd), request.world_size, str(_log(home, which)))


def _seen(home: Path, which: str, request: CheckRequest) -> Observation | Failure:
    return outcome_of(which, home / which, request.world_size)


def _transplants(home: Path, request: CheckRequest) -> bool:
    original, rewritten = _seen(home, "original", request), _seen(home, "rewritten", request)
    if isinstance(original, Failure) or isinstance(rewritten, Failure):
        return False
    return wants_transplant(request.init, original, rewritten)


def _report(home: Path, request: CheckRequest, transplanted: bool) -> ParityReport | Failure:
    seen: list[Observation] = []
    for which in (*RUNS, "transplanted") if transplanted else RUNS:
        result = _seen(home, which, request)
        if isinstance(result, Failure):
            return result
        seen.append(result)
    original, rewritten, floor, *rest = seen
    if rest:
        return compare_observations(Comparison(original, rest[0], (floor,), request.steps, as_found=rewritten))
    return compare_observations(Comparison(original, rewritten, (floor,), request.steps))
