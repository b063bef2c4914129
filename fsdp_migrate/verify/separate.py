"""`record` and `compare`: the two halves of a check, for cluster jobs in which the two programs run apart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from fsdp_migrate.verify.checks.comparison import Comparison
from fsdp_migrate.verify.observation import Observation, merge
from fsdp_migrate.verify.preflight import look, missing_program, objection
from fsdp_migrate.verify.records import SCHEMA, RecordsError, read_run
from fsdp_migrate.verify.report import Failure, ParityReport, Verdict
from fsdp_migrate.verify.request import CheckRequest, Side
from fsdp_migrate.verify.run import compare_observations
from fsdp_migrate.verify.runner import CouldNotRun, Plan, Progress, Runner

_ABOUT = "recording.json"


def record(request: CheckRequest, side: Side, directory: Path, progress: Progress | None = None) -> Failure | None:
    """Run one side (the original with its floor runs) and leave the records in `directory`.

    Returns why there is no recording, or None. Initial weights are not transplanted between recordings.
    """
    directory.mkdir(parents=True, exist_ok=True)
    problem = missing_program(request) or objection(request, look(request.python, request.env))
    if problem is not None:
        return problem
    runner = Runner(request, directory, progress)
    names = ["run"]
    try:
        runner.run(Plan(side, "run"))
        for n in range(request.floor_runs if side == "original" else 0):
            names.append(f"floor-{n + 1}")
            runner.run(Plan(side, names[-1], perturb=n + 1))
    except CouldNotRun as error:
        return error.failure
    about = {"schema": SCHEMA, "side": side, "runs": names, "steps": request.steps, "device": request.device}
    (directory / _ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return None


def compare(original: Path, rewritten: Path, allow: tuple[str, ...] = ()) -> ParityReport:
    """Compare two directories that `record` made. No process is started."""
    try:
        about, runs = _read(original, "original")
        _, others = _read(rewritten, "rewritten")
    except RecordsError as error:
        failure = Failure("compare", str(error), "record both sides with this version of fsdp-migrate")
        return ParityReport(Verdict.COULD_NOT_RUN, failure.message, failure=failure)
    if runs[0].world != others[0].world:
        message = f"{runs[0].world} ranks were recorded of the original, {others[0].world} of the rewritten program"
        failure = Failure("compare", message, "record both sides on the same number of ranks")
        return ParityReport(Verdict.COULD_NOT_RUN, message, failure=failure)
    report = compare_observations(Comparison(runs[0], others[0], tuple(runs[1:]), about["steps"]), allow)
    return replace(report, device=about["device"])


def _read(directory: Path, side: Side) -> tuple[dict[str, Any], list[Observation]]:
    try:
        about = json.loads((directory / _ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordsError(f"{directory} holds no finished recording: {error}") from error
    if about["side"] != side:
        raise RecordsError(f"{directory} is a recording of the {about['side']} program, not of the {side} one")
    found = [read_run(directory / name / "records") for name in about["runs"]]
    if not all(found):
        raise RecordsError(f"{directory} lacks the records of a run")
    return about, [merge(ranks) for ranks in found]
