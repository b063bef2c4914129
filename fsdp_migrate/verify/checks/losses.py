"""N1 and N4: the loss before the first update, and where training goes from there."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import zip_longest

from fsdp_migrate.verify.catalogue import UNSEEDED
from fsdp_migrate.verify.checks.comparison import (
    Comparison,
    first_step_loss,
    loss_differences,
    loss_resolutions,
    paired,
    relative,
    running_max,
    scientific,
    worst_floor,
)
from fsdp_migrate.verify.observation import Observation
from fsdp_migrate.verify.report import CheckRow, Mark

_FIRST = "loss before the first update"


def first_loss(comparison: Comparison) -> list[CheckRow]:
    """Same weights, same data: the forward must give the same loss, rank by rank and micro-batch by micro-batch."""
    if not comparison.original.losses or not comparison.rewritten.losses:
        return [CheckRow("N1", _FIRST, Mark.NOT_AVAILABLE, detail="no loss was seen")]
    value = first_step_loss(comparison.original, comparison.rewritten)
    floor = comparison.floor(first_step_loss)
    first = comparison.original.losses[0].step
    resolutions = zip(comparison.original.losses, loss_resolutions(comparison.original), strict=True)
    limit = max(comparison.precision.first_loss(floor), *(size for loss, size in resolutions if loss.step == first))
    mark, detail = Mark.PASS, ""
    if floor > comparison.precision.widest_floor and value > comparison.precision.first_loss(0.0):
        mark, detail = Mark.INCONCLUSIVE, f"the original differs from itself by {scientific(floor)}: {UNSEEDED}"
    elif value > limit:
        a, b = comparison.original.losses[0].values, comparison.rewritten.losses[0].values
        mark, detail = Mark.FAIL, f"first losses per rank {_list(a)} -> {_list(b)}"
    return [CheckRow("N1", _FIRST, mark, scientific(value), scientific(limit), detail)]


def trajectory(comparison: Comparison) -> list[CheckRow]:
    """The largest loss and gradient-norm difference so far, against the largest the floor run had by then."""
    precision = comparison.precision
    if not comparison.floors:
        return [CheckRow("N4", "trajectory", Mark.NOT_AVAILABLE, detail="no floor run to measure against")]
    mine = running_max(loss_differences(comparison.original, comparison.rewritten))
    rows = [_row("N4", "loss trajectory", mine, running_max(worst_floor(comparison)), comparison, loss_limits)]
    if not precision.low:  # in bf16 the norm of one batch moves too much to say anything more than the loss does
        mine = running_max(_norm_differences(comparison.original, comparison.rewritten))
        floors = [running_max(_norm_differences(comparison.original, run)) for run in comparison.floors]
        rows.append(_row("N4n", "gradient norm trajectory", mine, _highest(floors), comparison, _norm_limits))
    return rows


def loss_limits(comparison: Comparison, floor: list[float]) -> list[float]:
    """What N4 accepts at each backward; `floor` is the largest difference that the floor runs had by then."""
    least = running_max(loss_resolutions(comparison.original))
    return [max(a, b) for a, b in zip(_norm_limits(comparison, floor), least, strict=False)]


def _norm_limits(comparison: Comparison, floor: list[float]) -> list[float]:
    return [comparison.precision.trajectory(value) for value in floor]


def _row(
    check: str,
    title: str,
    mine: list[float],
    floor: list[float],
    comparison: Comparison,
    limits_of: Callable[[Comparison, list[float]], list[float]],
) -> CheckRow:
    if not mine or len(floor) < len(mine):
        detail = f"{len(mine)} in common, {len(floor)} of them in the floor run"
        return CheckRow(check, title, Mark.NOT_AVAILABLE, detail=detail)
    if floor[0] > comparison.precision.widest_floor and mine[-1] > comparison.precision.trajectory(0.0):
        return CheckRow(check, title, Mark.INCONCLUSIVE, scientific(mine[-1]), "", UNSEEDED)
    limits = limits_of(comparison, floor)
    bad = next((i for i, (value, limit) in enumerate(zip(mine, limits, strict=False)) if value > limit), None)
    shown = bad if bad is not None else len(mine) - 1
    value, limit = mine[shown], limits[shown]
    if bad is None:
        return CheckRow(check, title, Mark.PASS, scientific(value), scientific(limit))
    step = comparison.original.losses[bad].step if check == "N4" else bad
    stale = comparison.original.evaluated_before_step
    if stale is not None and stale < step:
        detail = (
            "the original evaluates between backward and step, and FSDP1 then trains on with stale root weights: a "
            "difference after that may be FSDP1's own mistake. Evaluate after the step in both, and check again"
        )
        return CheckRow(check, title, Mark.INCONCLUSIVE, scientific(value), scientific(limit), detail, step)
    detail = f"leaves what rounding explains at step {step}, then {value / max(limit, 1e-30):.0f} times the limit"
    if check == "N4" and (lost := _lost_at(comparison.rewritten)) is not None and _lost_at(comparison.original) is None:
        detail = f"the loss of the rewritten program is NaN or infinite from step {lost} on"
    return CheckRow(check, title, Mark.FAIL, scientific(mine[-1]), scientific(limit), detail, step)


def _lost_at(run: Observation) -> int | None:
    return next((loss.step for loss in run.losses if not all(map(math.isfinite, loss.values))), None)


def _norm_differences(a: Observation, b: Observation) -> list[float]:
    """Of the norm that the optimizers saw, at each of their steps, the optimizers matched by what they own."""
    both = paired(a.optimizers, b.optimizers)
    pairs = [(mine.norms, theirs.norms) for mine, theirs in both if theirs is not None]
    streams = [[relative(x, y) for x, y in zip(left, right, strict=False)] for left, right in pairs]
    return [max(values) for values in zip_longest(*streams, fillvalue=0.0)]


def _highest(floors: list[list[float]]) -> list[float]:
    return [max(values) for values in zip(*floors, strict=False)]


def _list(values: tuple[float, ...]) -> str:
    return "[" + ", ".join(f"{value:.6g}" for value in values[:4]) + ("…]" if len(values) > 4 else "]")
