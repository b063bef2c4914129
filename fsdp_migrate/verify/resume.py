"""R and C: does training go on from a checkpoint where it was saved?

R: the rewritten program saves and loads its own checkpoint. C: the rewritten program loads one that the FSDP1 program
saved. Both need the program to restore its data order too; the step it resumes at is found, not asked for.
"""

from __future__ import annotations

from fsdp_migrate.verify.checks.comparison import Comparison, relative, scientific
from fsdp_migrate.verify.observation import Loss, Observation
from fsdp_migrate.verify.report import CheckRow, Mark
from fsdp_migrate.verify.request import CheckRequest
from fsdp_migrate.verify.runner import CouldNotRun, Plan, Runner
from fsdp_migrate.verify.thresholds import Precision

_LEAST_STEPS = 2
"""A checkpoint without optimizer state gives the right first loss: the mistake shows from the second step on."""


def checkpoint_rows(request: CheckRequest, runner: Runner, comparison: Comparison) -> tuple[CheckRow, ...]:
    """Run the resumed programs that were asked for. A resumed program that dies is a failed check, not a failed run."""
    if request.resume_args is None:
        return ()
    rows = [
        _row("R", "resumed from its own checkpoint", "rewritten", comparison.rewritten, request, runner, comparison)
    ]
    if request.from_baseline_checkpoint:
        title = "resumed from the original's checkpoint"
        rows.append(_row("C", title, "original", comparison.original, request, runner, comparison))
    return tuple(rows)


def resumed_at(whole: Observation, resumed: Observation) -> tuple[int, float, int]:
    """(step, difference, steps compared): where in the uninterrupted run the resumed one fits best.

    The difference is the largest relative one of any rank's loss; step -1 when there is nothing to compare.
    """
    best = (-1, float("inf"), 0)
    first = min((loss.step for loss in whole.losses), default=0)
    last = max((loss.step for loss in whole.losses), default=-1)
    for step in range(first + 1, last + 1):
        rest = [loss for loss in whole.losses if loss.step >= step]
        difference, steps = _distance(rest, list(resumed.losses))
        if steps >= _LEAST_STEPS and difference < best[1]:
            best = (step, difference, steps)
    return best


def _row(
    check: str,
    title: str,
    saved_by: str,
    whole: Observation,
    request: CheckRequest,
    runner: Runner,
    comparison: Comparison,
) -> CheckRow:
    name = f"resumed from the {saved_by} checkpoint"
    try:
        resumed = runner.run(Plan("rewritten", name, more_args=request.resume_args or (), over=saved_by))
    except CouldNotRun as error:
        return CheckRow(check, title, Mark.FAIL, detail=error.failure.message)
    return judge(check, title, whole, resumed, comparison.precision)


def judge(check: str, title: str, whole: Observation, resumed: Observation, precision: Precision) -> CheckRow:
    """Whether the resumed run is a part of the whole one."""
    step, difference, compared = resumed_at(whole, resumed)
    if step < 0:
        detail = f"fewer than {_LEAST_STEPS} steps after the checkpoint; save earlier, or ask for more --steps"
        return CheckRow(check, title, Mark.NOT_AVAILABLE, detail=detail)
    limit = precision.trajectory(0.0)
    detail = f"fits best from step {step} on, {compared} steps compared"
    mark = Mark.FAIL if difference > limit else Mark.PASS
    return CheckRow(check, title, mark, scientific(difference), scientific(limit), detail)


def _distance(whole: list[Loss], resumed: list[Loss]) -> tuple[float, int]:
    pairs = list(zip(whole, resumed, strict=False))
    worst = max(
        (relative(x, y) for a, b in pairs for x, y in zip(a.values, b.values, strict=False)), default=float("inf")
    )
    return worst, len({a.step for a, _ in pairs})
