"""N5, M0 and T0: for information. The end weights, and what each side costs."""

from __future__ import annotations

from statistics import median

from fsdp_migrate.verify.checks.comparison import Comparison, scientific, short, tensor_distances, worst
from fsdp_migrate.verify.observation import Observation
from fsdp_migrate.verify.report import CheckRow, Mark
from fsdp_migrate.verify.thresholds import BIGGER, SLOWER


def end_weights(comparison: Comparison) -> list[CheckRow]:
    """No limit: an adaptive optimizer turns the rounding noise of a zero gradient into steps of full length."""
    title = "weights at the end"
    if not comparison.rewritten.end:
        return [CheckRow("N5", title, Mark.INFO, detail="the run did not get to its end")]
    name, value = worst(tensor_distances(comparison.original.end, comparison.rewritten.end))
    floor = comparison.floor(lambda a, b: worst(tensor_distances(a.end, b.end))[1])
    return [CheckRow("N5", title, Mark.INFO, scientific(value), f"floor {scientific(floor)}", f"worst: {short(name)}")]


def memory_and_time(comparison: Comparison) -> list[CheckRow]:
    """Side by side: a slower or bigger migration must say so. Not a verdict, because a machine's load is in it."""
    before, after = _step_time(comparison.original), _step_time(comparison.rewritten)
    peaks = [[peak for peak in run.peaks if peak is not None] for run in (comparison.original, comparison.rewritten)]
    on_gpus = all(peaks)  # elsewhere the time is that of the machine's other work
    detail = _more(before, after, SLOWER, "slower") if on_gpus else ""
    value = f"{before:.4f} -> {after:.4f}"
    rows = [CheckRow("T0", "seconds per step (median)", Mark.INFO, value, "", detail, warns=bool(detail))]
    if on_gpus:
        low, high = (max(side) / 2**20 for side in peaks)
        detail = _more(low, high, BIGGER, "bigger")
        value = f"{low:.0f} -> {high:.0f} MiB"
        rows.append(CheckRow("M0", "peak CUDA memory", Mark.INFO, value, "", detail, warns=bool(detail)))
    return rows


def _more(before: float, after: float, limit: float, word: str) -> str:
    return f"the rewritten program is {after / before - 1:.0%} {word}" if before and after > limit * before else ""


def _step_time(run: Observation) -> float:
    return median(run.seconds[1:] or run.seconds or (0.0,))
