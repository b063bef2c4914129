"""`run_check` of many programs at once: its scratch copies, its probe and its judgement, with forks for torchrun."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsdp_migrate.verify import CheckRequest, ParityReport
from fsdp_migrate.verify.checks.comparison import Comparison
from fsdp_migrate.verify.launch import Run, command
from fsdp_migrate.verify.observation import Observation
from fsdp_migrate.verify.report import Failure
from fsdp_migrate.verify.run import compare_observations, wants_transplant
from fsdp_migrate.verify.scratch import copy_tree
from tests.forks import AT_ONCE, Job, run
from tests.verify.runs import outcome_of


@dataclass(frozen=True)
class Pair:
    """One comparison. The runs of the original lie in the folder `base`, which other pairs may share: `original` and
    `floor`; those of the rewritten program in `place`: `rewritten`, and `transplanted` where that is asked for."""

    request: CheckRequest
    base: Path
    place: Path


def check_together(requests: Mapping[Path, CheckRequest]) -> dict[Path, ParityReport | Failure]:
    """What each comparison says. All its runs lie in the folder that is its key."""
    pairs = [Pair(request, home, home) for home, request in requests.items()]
    return dict(zip(requests, check_pairs(pairs), strict=True))


def observe_together(requests: Mapping[Path, CheckRequest]) -> dict[Path, Observation | Failure]:
    """What is seen of one run of each rewritten program. It lies in the folder that is its key."""
    pairs = {home: Pair(request, home, home) for home, request in requests.items()}
    _run([(pair, "rewritten") for pair in pairs.values()])
    return {home: _seen(pair, "rewritten") for home, pair in pairs.items()}


def check_pairs(pairs: Sequence[Pair]) -> list[ParityReport | Failure]:
    """What each comparison says."""
    bases = {pair.base: pair for pair in pairs}
    originals = [(pair, which) for pair in bases.values() for which in ("original", "floor")]
    _run([*originals, *((pair, "rewritten") for pair in pairs)])
    moved = [pair for pair in pairs if _transplants(pair)]
    _run([(pair, "transplanted") for pair in moved])
    return [_report(pair, pair in moved) for pair in pairs]


def _run(planned: list[tuple[Pair, str]]) -> None:
    """As in a check, a run in which native code ended a rank, mostly a thread of gloo's, is made once more."""
    run([_job(pair, which) for pair, which in planned], AT_ONCE)
    crashed = [plan for plan in planned if "Fatal Python error" in _log(*plan).read_text(errors="replace")]
    for plan in crashed:
        shutil.rmtree(_home(*plan))
    if crashed:
        run([_job(pair, which) for pair, which in crashed], AT_ONCE)


def _home(pair: Pair, which: str) -> Path:
    return (pair.base if which in ("original", "floor") else pair.place) / which


def _log(pair: Pair, which: str) -> Path:
    return _home(pair, which) / "log"


def _job(pair: Pair, which: str) -> Job:
    request, place, weights = pair.request, _home(pair, which), pair.base / "weights"
    planned = Run(
        "rewritten" if which in ("rewritten", "transplanted") else "original",
        which,
        place / "records",
        place / "scratch",
        perturb=1 if which == "floor" else None,
        save_init=weights if which == "floor" else None,
        load_init=weights if which == "transplanted" else None,
    )
    copy_tree(request.tree(planned.side), planned.scratch)
    words = command(request, planned)
    probe = words[words.index("fsdp_migrate.probe") - 1 :]
    return Job(probe, str(planned.scratch / request.cwd), request.world_size, str(_log(pair, which)))


def _seen(pair: Pair, which: str) -> Observation | Failure:
    return outcome_of(which, _home(pair, which), pair.request.world_size)


def _transplants(pair: Pair) -> bool:
    original, rewritten = _seen(pair, "original"), _seen(pair, "rewritten")
    if isinstance(original, Failure) or isinstance(rewritten, Failure):
        return False
    return wants_transplant(pair.request.init, original, rewritten)


def _report(pair: Pair, transplanted: bool) -> ParityReport | Failure:
    seen: list[Observation] = []
    for which in ("original", "rewritten", "floor", *(["transplanted"] if transplanted else [])):
        result = _seen(pair, which)
        if isinstance(result, Failure):
            return result
        seen.append(result)
    original, rewritten, floor, *rest = seen
    steps = pair.request.steps
    expect = pair.request.expect
    if rest:
        return compare_observations(Comparison(original, rest[0], (floor,), steps, as_found=rewritten, expect=expect))
    return compare_observations(Comparison(original, rewritten, (floor,), steps, expect=expect))
