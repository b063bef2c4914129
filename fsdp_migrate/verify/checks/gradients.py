"""N2, N3 and G0: the first gradients, as a norm, parameter by parameter, and who got one at all."""

from __future__ import annotations

from fsdp_migrate.verify.catalogue import UNSEEDED
from fsdp_migrate.verify.checks.comparison import (
    Comparison,
    paired,
    relative,
    scientific,
    short,
    some,
    tensor_distances,
    worst,
)
from fsdp_migrate.verify.observation import Observation
from fsdp_migrate.verify.report import CheckRow, Mark
from fsdp_migrate.verify.thresholds import TINY_GRADIENT


def norms(comparison: Comparison) -> list[CheckRow]:
    """Before clipping, and as the optimizer sees it. Clipping by the local shard's norm shows only in the second."""
    rows = []
    for title, before in (("before clipping", True), ("as the optimizer sees it", False)):
        value = _norm_difference(comparison.original, comparison.rewritten, before)
        if value is None:
            rows.append(
                CheckRow("N2", f"first gradient norm {title}", Mark.NOT_AVAILABLE, detail="no gradient was seen")
            )
            continue
        floor = comparison.floor(lambda a, b, before=before: _norm_difference(a, b, before) or 0.0)  # type: ignore[misc]
        limit = comparison.precision.first_norm(floor)
        a, b = _norm(comparison.original, before), _norm(comparison.rewritten, before)
        detail = f"{a:.6g} -> {b:.6g}" if value > limit else ""
        mark = Mark.FAIL if value > limit else Mark.PASS
        if floor > comparison.precision.widest_floor and value > comparison.precision.first_norm(0.0):
            mark, detail = Mark.INCONCLUSIVE, f"the original's differs from itself by {scientific(floor)}: {UNSEEDED}"
        rows.append(CheckRow("N2", f"first gradient norm {title}", mark, scientific(value), scientific(limit), detail))
    return rows


def gradients(comparison: Comparison) -> list[CheckRow]:
    """The first gradient of each parameter, by sketch; a missing one counts as zero here, G0 tells them apart."""
    a, b = comparison.original, comparison.rewritten
    title = "first gradients, parameter by parameter"
    if not a.gradients:
        return [CheckRow("N3", title, Mark.NOT_AVAILABLE, detail="no gradient was seen in the original")]
    mine = _distances(a, b)
    floor = comparison.floor(lambda original, run: worst(_distances(original, run))[1])
    name, value = worst(mine)
    limit = comparison.precision.gradient(floor)
    mark, detail, bad = Mark.PASS, f"worst: {short(name)}" if name else "", list[str]()
    if floor > comparison.precision.widest_floor and value > comparison.precision.gradient(0.0):
        mark, detail = Mark.INCONCLUSIVE, f"the original's differ from themselves by {scientific(floor)}: {UNSEEDED}"
    elif value > limit:
        bad = [n for n, v in sorted(mine.items(), key=lambda item: -item[1]) if v > limit]
        mark, detail = Mark.FAIL, f"{len(bad)} of {len(mine)} parameters, worst {', '.join(map(short, bad[:3]))}"
    return [CheckRow("N3", title, mark, scientific(value), scientific(limit), detail, items=tuple(map(short, bad)))]


def gradient_owners(comparison: Comparison) -> list[CheckRow]:
    """FSDP1 gives an unused parameter of a used group zeros, FSDP2 gives it None. An optimizer with weight decay or
    momentum moves the one and skips the other."""
    a, b = comparison.original, comparison.rewritten
    title = "who got a gradient"
    silent = sorted(b.without_gradient - a.without_gradient)
    extra = sorted((a.without_gradient - b.without_gradient) & b.gradients.keys())
    stirring = {name for optimizer in b.optimizers if optimizer.stirs for name in optimizer.key}
    if not a.gradients and not a.without_gradient:
        return [CheckRow("G0", title, Mark.NOT_AVAILABLE, detail="no gradient was seen in the original")]
    detail, mark = "", Mark.PASS
    if silent:
        zeros = all(name in a.gradients and a.gradients[name].squares == 0 for name in silent)
        moved = [name for name in silent if name in stirring]
        mark = Mark.INFO if zeros and not moved else Mark.FAIL
        detail = f"{some(silent)} got {'zeros' if zeros else 'a gradient'} in the original and none in the rewritten"
        if zeros and moved:
            detail += (
                "; the optimizer moved them on zeros and leaves them now: call "
                "model.set_reduce_scatter_unused_params(True) (torch 2.13), or freeze them"
            )
    elif extra:
        mark = Mark.INFO if all(b.gradients[name].squares == 0 for name in extra) else Mark.FAIL
        detail = f"{some(extra)} got no gradient in the original and one in the rewritten"
    with_gradient = len(a.gradients) - len(a.without_gradient & a.gradients.keys())
    items = tuple(short(name) for name in silent or extra)
    return [CheckRow("G0", title, mark, f"{with_gradient} parameters", "equal", detail, items=items)]


def carried_over(comparison: Comparison) -> list[CheckRow]:
    """Whether gradients were cleared between steps. Compared exactly: behind clipping and an adaptive optimizer a lost
    zero_grad() can hide for many steps, in bf16 altogether."""
    a, b = comparison.original.carried, comparison.rewritten.carried
    step = next((i for i, (mine, theirs) in enumerate(zip(a, b, strict=False)) if mine != theirs), None)
    title = "gradients left from the step before"
    value = f"in {sum(a)} -> {sum(b)} steps"
    if not a or not b:
        return [CheckRow("G1", title, Mark.NOT_AVAILABLE, detail="no step was seen")]
    if step is None:
        return [CheckRow("G1", title, Mark.PASS, value, "equal")]
    had = "has gradients the original cleared" if b[step] else "has lost gradients the original kept"
    return [CheckRow("G1", title, Mark.FAIL, value, "equal", f"at step {step} the rewritten program {had}", step)]


def _distances(a: Observation, b: Observation) -> dict[str, float]:
    """Relative distance of each gradient that either side has; absent and zero are the same here."""
    distances = tensor_distances(a.gradients, b.gradients, TINY_GRADIENT)
    zero = {name for run in (a, b) for name, sketch in run.gradients.items() if sketch.squares == 0}
    lonely = {name for name in distances if (name in a.gradients) != (name in b.gradients)}
    return {name: 0.0 if name in lonely & zero else value for name, value in distances.items()}


def _norm(run: Observation, before: bool) -> float:
    series = [optimizer.norms_before if before else optimizer.norms for optimizer in run.optimizers]
    return float(next((values[0] for values in series if values and values[0] is not None), float("nan")) or 0.0)


def _norm_difference(a: Observation, b: Observation, before: bool) -> float | None:
    """The worst over the optimizers, matched by what they own, and by order where that does not match."""
    found: list[float] = []
    for number, (mine, same) in enumerate(paired(a.optimizers, b.optimizers)):
        theirs = same or (b.optimizers[number] if number < len(b.optimizers) else None)
        if theirs is None:
            continue
        left, right = (mine.norms_before, theirs.norms_before) if before else (mine.norms, theirs.norms)
        if left and right and left[0] is not None and right[0] is not None:
            found.append(relative(left[0], right[0]))
    return max(found) if found else None
