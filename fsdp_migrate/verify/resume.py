"""R and C: does training go on from a checkpoint where it was saved?

R: the rewritten program saves and loads its own checkpoint. C: the rewritten program loads one that the FSDP1 program
saved. The step it resumes at is found, not asked for. Before either fails the original is resumed too: one that reads
its data from the start again, or draws other numbers, could not go on identically either. Then the two resumed programs
are held against each other, which shows as much, when they are equal.
"""

from __future__ import annotations

from dataclasses import replace

from fsdp_migrate.verify.checks.comparison import Comparison, loss_resolutions, relative, scientific
from fsdp_migrate.verify.observation import Loss, Observation
from fsdp_migrate.verify.report import CheckRow, Mark
from fsdp_migrate.verify.request import CheckRequest, Side
from fsdp_migrate.verify.runner import CouldNotRun, Plan, Runner
from fsdp_migrate.verify.thresholds import Precision

_LEAST_STEPS = 2
"""A checkpoint without optimizer state gives the right first loss: the mistake shows from the second step on."""


def checkpoint_rows(request: CheckRequest, runner: Runner, comparison: Comparison) -> tuple[CheckRow, ...]:
    """Run the resumed programs that were asked for. A resumed program that dies is a failed check, not a failed run."""
    if request.resume_args is None:
        return ()
    wanted: list[tuple[str, str, Side, Observation]] = [
        ("R", "resumed from its own checkpoint", "rewritten", comparison.rewritten)
    ]
    if request.from_baseline_checkpoint:
        wanted.append(("C", "resumed from the original's checkpoint", "original", comparison.original))
    control: Observation | str | None = None
    rows = []
    for check, title, saved_by, whole in wanted:
        resumed = _resumed(request, runner, "rewritten", saved_by)
        row = _row(check, title, whole, resumed, comparison)
        if row.mark is Mark.FAIL:
            control = control or _resumed(request, runner, "original", "original")
            row = held_against(row, resumed, control, comparison)
        rows.append(row)
    return tuple(rows)


def _resumed(request: CheckRequest, runner: Runner, side: Side, saved_by: Side) -> Observation | str:
    """The run that goes on, or why there is none."""
    name = f"{side} resumed from the {saved_by} checkpoint"
    try:
        return runner.run(Plan(side, name, more_args=request.resume_args or (), over=saved_by))
    except CouldNotRun as error:
        return error.failure.message


def _row(check: str, title: str, whole: Observation, resumed: Observation | str, comparison: Comparison) -> CheckRow:
    if isinstance(resumed, str):
        return CheckRow(check, title, Mark.FAIL, detail=resumed)
    return judge(check, title, whole, resumed, comparison.precision)


def held_against(
    row: CheckRow, resumed: Observation | str, control: Observation | str, comparison: Comparison
) -> CheckRow:
    """What a failed row is worth beside the original's own attempt."""
    if isinstance(control, str):
        return replace(row, mark=Mark.INCONCLUSIVE, detail=f"{_NOT_EVEN} from its own checkpoint: {control}. {_HINT}")
    if _begins_anew(comparison.original, control):
        return replace(row, mark=Mark.INCONCLUSIVE, detail=_ANEW)
    itself = judge(row.id, row.title, comparison.original, control, comparison.precision)
    if itself.mark is not Mark.FAIL:
        return replace(row, detail=f"{row.detail}; the original goes on from its own where it was saved")
    if not isinstance(resumed, str):
        difference, steps = _distance(list(control.losses), list(resumed.losses))
        limit = max([comparison.precision.trajectory(0.0), *loss_resolutions(control)])
        if steps >= _LEAST_STEPS and difference <= limit:
            detail = f"{_NOT_EVEN} where it was saved ({itself.value}), and the rewritten program does as it does"
            return replace(row, mark=Mark.PASS, value=scientific(difference), limit=scientific(limit), detail=detail)
    detail = f"{_NOT_EVEN} where it was saved ({itself.value} against {itself.limit}). {_HINT}"
    return replace(row, mark=Mark.INCONCLUSIVE, detail=detail)


_NOT_EVEN = "the original does not go on"
_ANEW = (
    "the original began anew, to the last digit: it found no checkpoint. Let it save within these steps, or ask for "
    "more --steps; --resume-args has to lead to what was saved"
)
_HINT = "It has to restore its data's order and its random numbers too, and be seeded (--seed), for this to be decided"


def _begins_anew(whole: Observation, resumed: Observation) -> bool:
    """Whether a resumed run is the whole one from its first step: what it should go on from was not there."""
    difference, steps = _distance(list(whole.losses), list(resumed.losses))
    return steps >= _LEAST_STEPS and difference == 0.0


def resumed_at(whole: Observation, resumed: Observation) -> tuple[int, float, int]:
    """(step, difference, steps compared): where in the uninterrupted run the resumed one fits best, not far from where
    a file was saved, if one was seen.

    The difference is the largest relative one of any rank's loss; step -1 when there is nothing to compare.
    """
    best = (-1, float("inf"), 0)
    first = min((loss.step for loss in whole.losses), default=0)
    last = max((loss.step for loss in whole.losses), default=-1)
    saved = {file.step for file in whole.files}
    for step in range(first + 1, last + 1):
        if saved and not saved & {step - 1, step, step + 1}:
            continue  # losses of low precision fit each other in many places
        rest = [loss for loss in whole.losses if loss.step >= step]
        difference, steps = _distance(rest, list(resumed.losses))
        if steps >= _LEAST_STEPS and difference < best[1]:
            best = (step, difference, steps)
    return best


def judge(check: str, title: str, whole: Observation, resumed: Observation, precision: Precision) -> CheckRow:
    """Whether the resumed run is a part of the whole one."""
    step, difference, compared = resumed_at(whole, resumed)
    if step < 0:
        detail = f"fewer than {_LEAST_STEPS} steps after the checkpoint; save earlier, or ask for more --steps"
        return CheckRow(check, title, Mark.NOT_AVAILABLE, detail=detail)
    limit = max([precision.trajectory(0.0), *loss_resolutions(whole)])
    detail = f"fits best from step {step} on, {compared} steps compared"
    mark = Mark.FAIL if difference > limit else Mark.PASS
    return CheckRow(check, title, mark, scientific(difference), scientific(limit), detail)


def _distance(whole: list[Loss], resumed: list[Loss]) -> tuple[float, int]:
    pairs = list(zip(whole, resumed, strict=False))
    worst = max(
        (relative(x, y) for a, b in pairs for x, y in zip(a.values, b.values, strict=False)), default=float("inf")
    )
    return worst, len({a.step for a, _ in pairs})
