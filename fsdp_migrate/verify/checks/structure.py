"""S1 to S3: the same shard groups, dtypes and collectives. The loss shows none of these."""

from __future__ import annotations

from collections import Counter

from fsdp_migrate.verify.checks.comparison import Comparison
from fsdp_migrate.verify.observation import Observation, Unit
from fsdp_migrate.verify.report import CheckRow, Mark
from fsdp_migrate.verify.thresholds import BYTES_TOLERANCE

Comm = dict[str, tuple[int, int]]
_FEWER = (
    "fewer gathers: FSDP2 does not gather again what is still gathered, such as small units nested inside activation "
    "checkpointing"
)
_MORE = "more gathers of the same bytes: some unit is gathered again that FSDP1 still had, such as one used twice"
_NO_UNIT = "no shard group was seen in the original"
_KEEPS_GATHERED = ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2")


def groups(comparison: Comparison) -> list[CheckRow]:
    """Which parameters are gathered together. Sharding only the root keeps every number and wastes the memory."""
    if not comparison.original.units:
        return [CheckRow("S1", "shard groups", Mark.NOT_AVAILABLE, detail=_NO_UNIT)]
    before = {unit.key: unit for unit in comparison.original.units}
    after = {unit.key: unit for unit in comparison.rewritten.units}
    lost = [unit for key, unit in before.items() if key not in after]
    gained = [unit for key, unit in after.items() if key not in before]
    detail = ""
    if lost or gained:
        detail = f"without counterpart: {_units(lost)} in the original, {_units(gained)} in the rewritten"
    uneven = [unit for key, unit in before.items() if key in after and after[key].numel != unit.numel]
    if uneven and not detail:
        detail = f"{uneven[0].name} has {uneven[0].numel} elements in the original, other in the rewritten"
    shards = [u for key, u in before.items() if key in after and after[key].shard_world != u.shard_world]
    if shards and not detail:
        first = shards[0]
        detail = f"{first.name} is split over {first.shard_world} ranks, then over {after[first.key].shard_world}"
    mark = Mark.FAIL if detail else Mark.PASS
    items = tuple(f"{side}: {unit.name}" for side, some in (("lost", lost), ("new", gained)) for unit in some)
    return [CheckRow("S1", "shard groups", mark, f"{len(before)} -> {len(after)}", "equal", detail, items=items)]


def dtypes(comparison: Comparison) -> list[CheckRow]:
    """The dtype parameters are kept in, computed in, and reduced in, group by group."""
    title = "dtypes (kept / computed / reduced)"
    if not comparison.original.units:
        return [CheckRow("S2", title, Mark.NOT_AVAILABLE, detail=_NO_UNIT)]
    after = {unit.key: unit for unit in comparison.rewritten.units}
    pairs = [(unit, after[unit.key]) for unit in comparison.original.units if unit.key in after]
    whole = not pairs
    if whole:  # no group matches; S1 fails, and the sets of dtypes are still worth a look
        a, b = ({_dtypes(u) for u in run.units} for run in (comparison.original, comparison.rewritten))
        detail = "" if a == b else f"{sorted(a)} -> {sorted(b)}"
    else:
        different = [(u, v) for u, v in pairs if _dtypes(u) != _dtypes(v)]
        detail = "; ".join(f"{u.name}: {_say(u)} -> {_say(v)}" for u, v in different[:3])
    shown = sorted({_say(unit) for unit in comparison.original.units})
    mark = Mark.FAIL if detail else Mark.PASS
    return [CheckRow("S2", title, mark, "; ".join(shown), "equal", detail)]


def communication(comparison: Comparison) -> list[CheckRow]:
    """All-gathers and reduce-scatters of a usual step. The bytes of both decide, and how often gradients are reduced:
    how many calls the same bytes are gathered in is for information, because it follows from where units are nested."""
    title = "communication of a step"
    if len(comparison.original.comm) < 2 or len(comparison.rewritten.comm) < 2:
        return [CheckRow("S3", title, Mark.NOT_AVAILABLE, detail="needs two steps: the first differs from the rest")]
    before, after = _usual(comparison.original), _usual(comparison.rewritten)
    if not before and any(unit.shard_world > 1 for unit in comparison.original.units):
        detail = (
            "FSDP1 gathered nothing that the probe could see: is this torch newer than this version of fsdp-migrate?"
        )
        return [CheckRow("S3", title, Mark.NOT_AVAILABLE, detail=detail)]
    value = f"{_counts(before)} -> {_counts(after)}"
    if comparison.expect is not None:
        return [_of_upgrade(title, value, before, after, comparison)]
    limit = f"reductions equal, bytes {BYTES_TOLERANCE:.0%}"
    problems = [
        problem
        for kind in ("all_gather", "reduce_scatter")
        if (problem := _difference(kind, before.get(kind, (0, 0)), after.get(kind, (0, 0)), comparison))
    ]
    if problems and _leaves_out_a_third_gather(comparison, before, after, len(problems)):
        return [CheckRow("S3", title, Mark.INFO, value, limit, _FEWER)]
    if problems:
        explained = _explained(comparison, before, after, len(problems))
        mark = Mark.INFO if explained else Mark.FAIL
        return [CheckRow("S3", title, mark, value, limit, explained or "; ".join(problems), warns=bool(explained))]
    gathers, others = before.get("all_gather", (0, 0))[0], after.get("all_gather", (0, 0))[0]
    if gathers == others:
        return [CheckRow("S3", title, Mark.PASS, value, limit)]
    more = others > gathers
    return [CheckRow("S3", title, Mark.INFO, value, limit, _MORE if more else _FEWER, warns=more)]


def _of_upgrade(title: str, value: str, before: Comm, after: Comm, comparison: Comparison) -> CheckRow:
    """An upgrade may gather what it likes, which is told; gradients are reduced as before."""
    reduced, gathered = (
        [side.get(kind, (0, 0)) for side in (before, after)] for kind in ("reduce_scatter", "all_gather")
    )
    problem = _difference("reduce_scatter", reduced[0], reduced[1], comparison)
    detail = "; ".join(filter(None, [problem, f"all_gather bytes per step {gathered[0][1]} -> {gathered[1][1]}"]))
    return CheckRow("S3", title, Mark.FAIL if problem else Mark.PASS, value, "reductions equal", detail)


def _explained(comparison: Comparison, before: Comm, after: Comm, problems: int) -> str:
    """Why the rewritten program communicates more without computing anything else; empty: no such reason."""
    if problems == 1 and _gathers_for_each_micro_batch(comparison, before, after):
        return (
            "FSDP1 kept the weights gathered between the micro-batches of no_sync(), the rewritten program gathers "
            "them for each: the same numbers, less memory, more communication "
            "(set_reshard_after_backward(False) keeps them gathered)"
        )
    if _reduces_after_each_forward(comparison, before, after):
        return (
            "several forwards share one backward: FSDP2 gathers, and reduces gradients, for each of them where FSDP1 "
            "did so once: the same numbers, more communication"
        )
    if _gathers_the_root_anew(comparison, before, after):
        return (
            "the original evaluates between backward and step, and FSDP1 then goes on with the root's weights as "
            "gathered before the step; the rewritten program gathers them anew"
        )
    return ""


def _difference(kind: str, mine: tuple[int, int], theirs: tuple[int, int], comparison: Comparison) -> str:
    """What differs in one kind of collective. Bytes are compared for each element that has to be moved: FSDP1 pads a
    flat buffer, FSDP2 pads each parameter."""
    (count, size), (other_count, other_size) = mine, theirs
    if count != other_count and (kind == "reduce_scatter" or not (count and other_count)):
        return f"{kind}s per step {count} -> {other_count}"
    low, high = _padding(comparison, kind)
    if count and not low * (1 - BYTES_TOLERANCE) <= other_size / max(1, size) <= high * (1 + BYTES_TOLERANCE):
        calls = "" if count == other_count else f" in {count} -> {other_count} calls"
        return f"{kind} bytes per step {size} -> {other_size}{calls}"
    return ""


def _gathers_for_each_micro_batch(comparison: Comparison, before: Comm, after: Comm) -> bool:
    """Whether more all-gathers are just those that FSDP1's SHARD_GRAD_OP saves inside no_sync()."""
    times = _times_kept(comparison.original)
    count, other = before.get("all_gather", (0, 0))[0], after.get("all_gather", (0, 0))[0]
    return times > 1 and before.get("reduce_scatter") is not None and other == count * times


def _times_kept(original: Observation) -> float:
    """For how many micro-batches FSDP1 gathers once: 1, or all of a step with SHARD_GRAD_OP and no_sync()."""
    kept = all(unit.strategy in _KEEPS_GATHERED for unit in original.units)
    return len(original.losses) / max(1, min(original.steps)) if kept else 1


def _leaves_out_a_third_gather(comparison: Comparison, before: Comm, after: Comm, problems: int) -> bool:
    """Whether fewer bytes are just those of gathers beyond one in forward and one in backward: FSDP1 gathers a unit
    that is computed again a third time. A root is kept in between."""
    original = comparison.original
    roots = len({unit.root for unit in original.units})
    micro_batches = len(original.losses) / max(1, min(original.steps))
    needed = micro_batches * (2 * len(original.units) - roots)
    kept = any(unit.strategy in _KEEPS_GATHERED for unit in original.units)
    count, other = before.get("all_gather", (0, 0))[0], after.get("all_gather", (0, 0))[0]
    same = before.get("reduce_scatter") == after.get("reduce_scatter")
    return problems == 1 and same and not kept and max(needed, count - original.recomputed) <= other < count


def _usual(run: Observation) -> Comm:
    """The pattern most steps share. The first is left out: FSDP1 and FSDP2 set themselves up in it."""
    patterns = Counter(tuple(sorted(step.items())) for step in run.comm[1:])
    return dict(patterns.most_common(1)[0][0])


def _reduces_after_each_forward(comparison: Comparison, before: Comm, after: Comm) -> bool:
    """Whether more collectives are just those of more forwards than backwards (a preference pair, a siamese net)."""
    original, rewritten = comparison.original, comparison.rewritten
    per_step = len(original.losses) / max(1, min(original.steps))
    ratio = max(original.forwards / max(1, len(original.losses)), original.unit_forwards / max(1.0, per_step))
    most = {"all_gather": ratio * _times_kept(original), "reduce_scatter": ratio}
    more = [(before.get(kind, (0, 0))[0], after.get(kind, (0, 0))[0], times) for kind, times in most.items()]
    return (
        ratio > 1
        and (original.forwards, original.unit_forwards) == (rewritten.forwards, rewritten.unit_forwards)
        and all(mine <= theirs <= mine * times for mine, theirs, times in more)
    )


def _gathers_the_root_anew(comparison: Comparison, before: Comm, after: Comm) -> bool:
    """Whether more all-gathers are just those of roots that FSDP1 leaves gathered, with stale weights."""
    roots = len({unit.root for unit in comparison.original.units})
    gathers, others = before.get("all_gather", (0, 0))[0], after.get("all_gather", (0, 0))[0]
    reductions, other_reductions = before.get("reduce_scatter", (0, 0))[0], after.get("reduce_scatter", (0, 0))[0]
    stale = comparison.original.evaluated_before_step is not None
    return stale and gathers < others <= gathers + roots and reductions == other_reductions


def _padding(comparison: Comparison, kind: str) -> tuple[float, float]:
    """The least and the largest growth that padding and missing gradients explain, over the groups that match; a step
    may use any of them."""
    after = {unit.key: unit for unit in comparison.rewritten.units}
    pairs = [(_moved(u, kind), _moved(after[u.key], kind)) for u in comparison.original.units if u.key in after]
    growth = [theirs / mine for mine, theirs in pairs if mine and theirs]
    return (min(growth), max(growth)) if growth else (1.0, 1.0)


def _moved(unit: Unit, kind: str) -> int:
    """A unit without gradients when units were looked at may be another model's, whose turn comes later."""
    return unit.padded_numel if kind == "all_gather" else unit.reduced_numel or unit.padded_numel


def _counts(comm: Comm) -> str:
    return " + ".join(f"{comm.get(kind, (0, 0))[0]} {kind}" for kind in ("all_gather", "reduce_scatter"))


def _dtypes(unit: Unit) -> tuple[str, str, str]:
    return unit.storage_dtype, unit.param_dtype, unit.reduce_dtype


def _say(unit: Unit) -> str:
    return " / ".join(_dtypes(unit))


def _units(units: list[Unit]) -> str:
    if not units:
        return "none"
    shown = ", ".join(f"{unit.name} ({len(unit.params)} parameters)" for unit in units[:4])
    return shown + (f" and {len(units) - 4} more" if len(units) > 4 else "")
