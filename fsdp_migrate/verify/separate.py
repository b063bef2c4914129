"""`record` and `compare`: the two halves of a check, for cluster jobs in which the two programs run apart."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fsdp_migrate.verify.checks.comparison import Comparison
from fsdp_migrate.verify.observation import Observation, merge
from fsdp_migrate.verify.preflight import look, missing_program, objection
from fsdp_migrate.verify.records import SCHEMA, RecordsError, read_run
from fsdp_migrate.verify.report import Failure, ParityReport, Verdict
from fsdp_migrate.verify.request import CheckRequest, Side
from fsdp_migrate.verify.run import compare_observations, limits_of, wants_transplant
from fsdp_migrate.verify.runner import CouldNotRun, Plan, Progress, Runner, cannot_write

_ABOUT = "recording.json"
_FIRST, _TRANSPLANTED = "run", "transplanted"
_WEIGHTS = "weights"


@dataclass(frozen=True, slots=True)
class Recording:
    """What one folder holds: the side, found out by what ran, and the runs made of it."""

    side: Side
    runs: tuple[str, ...]
    ranks: int
    steps: int
    wanted: int
    device: str
    seed: int | None
    limits: tuple[str, ...]
    schema: int = SCHEMA

    @property
    def floors(self) -> int:
        """How many runs from moved weights there are."""
        return sum(name.startswith("floor") for name in self.runs)


def record(
    request: CheckRequest,
    directory: Path,
    progress: Progress | None = None,
    save_init: bool = False,
    init_from: Path | None = None,
) -> Recording | Failure:
    """Run `request.original`, and leave the records in `directory`.

    A program with FSDP1 groups is an original, and is run again from moved weights. With `save_init` its initial
    weights are kept too; with `init_from`, the folder of such a recording, a rewritten program that draws other
    weights is run again from those.
    """
    directory = directory.resolve()
    try:
        problem = missing_program(request) or objection(request, look(request.python, request.env))
        if problem is not None:
            raise CouldNotRun(problem)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / _ABOUT).unlink(missing_ok=True)
        with closing(Runner(request, directory, progress)) as runner:
            recording = _recorded(request, runner, save_init, init_from)
        (directory / _ABOUT).write_text(json.dumps(asdict(recording), indent=2) + "\n", encoding="utf-8")
    except CouldNotRun as error:
        return error.failure
    except RecordsError as error:
        return Failure("record", str(error), "record the original with --save-init first")
    except OSError as error:
        return cannot_write(directory, error)
    return recording


def compare(original: Path, rewritten: Path, allow: tuple[str, ...] = ()) -> ParityReport:
    """Compare two directories that `record` made. No process is started."""
    try:
        before, after = _about(original), _about(rewritten)
        problem = _not_a_pair(original, before, after)
        if problem is not None:
            return _nothing(problem)
        first, *floors = (_observation(original, name) for name in before.runs)
        found, *transplanted = (_observation(rewritten, name) for name in after.runs if not name.startswith("floor"))
    except RecordsError as error:
        return _nothing(Failure("compare", str(error), "record both sides with this version of fsdp-migrate"))
    second, as_found = (transplanted[0], found) if transplanted else (found, None)
    report = compare_observations(Comparison(first, second, tuple(floors), before.wanted, as_found), allow)
    return replace(report, device=before.device, limits=tuple(dict.fromkeys(before.limits + after.limits)))


def _recorded(request: CheckRequest, runner: Runner, save_init: bool, init_from: Path | None) -> Recording:
    original = (_observation(init_from, _FIRST), _weights_in(init_from)) if init_from is not None else None
    seen = runner.run(Plan("original", _FIRST))
    names = [_FIRST]
    side: Side = "original" if seen.fsdp1 else "rewritten"
    if not seen.fsdp1 and not seen.fsdp2:
        message = "no FSDP group was seen: there is nothing to compare"
        raise CouldNotRun(
            Failure("record", message, "check that the program wraps its model when run with these options")
        )
    for n in range(max(1, request.floor_runs) if side == "original" else 0):
        names.append(f"floor-{n + 1}")
        weights = runner.home / _WEIGHTS if save_init and n == 0 else None
        runner.run(Plan("original", names[-1], perturb=n + 1, save_init=weights))
    if original is not None and wants_transplant(request.init, original[0], seen):
        names.append(_TRANSPLANTED)
        runner.run(Plan("original", _TRANSPLANTED, load_init=original[1]))
    return Recording(
        side,
        tuple(names),
        seen.world,
        min(seen.steps, default=0),
        request.steps,
        request.device,
        request.seed,
        limits_of(request),
    )


def _not_a_pair(place: Path, before: Recording, after: Recording) -> Failure | None:
    if before.side != "original":
        message = f"{place} is a recording of the rewritten program, not of the original one"
        return Failure("compare", message, "name the recording of the FSDP1 program first")
    for what, a, b in (
        ("ranks", before.ranks, after.ranks),
        ("--steps", before.wanted, after.wanted),
        ("--seed", before.seed, after.seed),
        ("the device", before.device, after.device),
    ):
        if a != b:
            message = f"the recordings differ in {what}: {a} of the original, {b} of the rewritten program"
            return Failure("compare", message, "record both sides with the same options")
    return None


def _about(directory: Path) -> Recording:
    try:
        about = json.loads((directory / _ABOUT).read_text(encoding="utf-8"))
        if about["schema"] != SCHEMA:
            raise RecordsError(f"{directory} is a recording of schema {about['schema']}, this version reads {SCHEMA}")
        return Recording(**{**about, "runs": tuple(about["runs"]), "limits": tuple(about["limits"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordsError(f"{directory} holds no finished recording: {error}") from error


def _observation(directory: Path, name: str) -> Observation:
    ranks = read_run(directory / name / "records")
    if not ranks:
        raise RecordsError(f"{directory} lacks the records of its {name}")
    return merge(ranks)


def _weights_in(directory: Path) -> Path:
    weights = (directory / _WEIGHTS).resolve()
    if not any(weights.glob("root-*")):
        raise RecordsError(f"{directory} holds no initial weights")
    return weights


def _nothing(failure: Failure) -> ParityReport:
    return ParityReport(Verdict.COULD_NOT_RUN, failure.message, failure=failure)
