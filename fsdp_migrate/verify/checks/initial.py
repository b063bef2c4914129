"""N0: the weights before anything was computed, and whether a difference there is a mistake or another random draw."""

from __future__ import annotations

import math

from fsdp_migrate.verify.catalogue import UNSEEDED
from fsdp_migrate.verify.checks.comparison import Comparison, relative, scientific, short, some, tensor_distances, worst
from fsdp_migrate.verify.observation import Observation
from fsdp_migrate.verify.report import CheckRow, Mark
from fsdp_migrate.verify.sketches import Sketch

_TITLE = "initial weights"
_SIGMAS = 6.0
_ROUNDING = 1e-12
"""What sums of float64 leave in another order: 8e-17 of the norm, measured over a layer of 1.2 million weights. One
float32 weight among a billion that is off by one unit in the last place is 2e-12.
"""
_LIMIT = scientific(_ROUNDING)
_BUFFER_TOLERANCE = 2.0**-7
"""A buffer may have been stored in bf16 by either side (FSDP1's buffer_dtype)."""


def initial_weights(comparison: Comparison) -> list[CheckRow]:
    """Equal, or (after a transplant) explained: another draw from the same law by a deferred initialisation."""
    found = comparison.as_found or comparison.rewritten
    row = _weights_row(comparison, found)
    return [row, _buffers_row(comparison.original, found)]


def init_problem(original: Observation, rewritten: Observation) -> str:
    """Why different initial weights are a mistake of the rewritten program; empty when they may be another draw."""
    patchwork = _patchwork(original, rewritten)
    if patchwork:
        return patchwork
    # One number says nothing of a law; where the ranks of the original drew it apart, it was drawn.
    drawn = {
        name for name in original.init if original.init[name].numel == 1 and short(name) in original.ranks_disagree
    }
    compared = sorted(original.init.keys() - drawn)
    unlike = [name for name in compared if not _same_law(original.init[name], rewritten.init.get(name))]
    if unlike:
        return f"{some(unlike)} do not even have the original's mean and variance"
    if not (rewritten.meta_params or original.meta_params or rewritten.redrawn or original.ranks_disagree):
        return "neither side initialises after sharding, so the same seed should give the same weights"
    return ""


def _patchwork(original: Observation, rewritten: Observation) -> str:
    """Whether the sharded weights are no draw at all: slices of several, as the original's are not, or one slice
    several times."""
    torn = list(rewritten.ranks_disagree)
    if torn and not original.ranks_disagree:  # each names a weight from where it was handed over: names do not match
        return (
            f"ranks held different values of {some(torn)} when they called fully_shard(): each contributes slices of "
            "its own. Was sync_module_states=True dropped?"
        )
    repeated = _repeated(rewritten)
    if repeated and not rewritten.draws_repeat:
        return f"every rank drew the same numbers for its own slice of {some(repeated)}: the shards repeat each other"
    return ""


def differs(original: Observation, rewritten: Observation) -> bool:
    """Whether any initial weight is another one."""
    return worst(tensor_distances(original.init, rewritten.init))[1] > _ROUNDING


def _weights_row(comparison: Comparison, found: Observation) -> CheckRow:
    if not comparison.original.init:
        return CheckRow("N0", _TITLE, Mark.NOT_AVAILABLE, detail="no weights were seen before the first step")
    name, value = worst(tensor_distances(comparison.original.init, found.init))
    if value <= _ROUNDING:
        return CheckRow("N0", _TITLE, Mark.PASS, scientific(value), _LIMIT)
    itself = comparison.floor(lambda a, b: worst(tensor_distances(a.init, b.init))[1])
    patchwork = _patchwork(comparison.original, found)
    if itself > _ROUNDING and not patchwork:  # the weights were recorded before they were moved
        detail = f"the original's own weights differ by {scientific(itself)} from run to run: {UNSEEDED}"
        return CheckRow("N0", _TITLE, Mark.INCONCLUSIVE, scientific(value), _LIMIT, detail)
    problem = init_problem(comparison.original, found)
    if patchwork or comparison.as_found is None:
        detail = problem or f"worst: {short(name)}; --init copy (record: --init-from) starts both from the original's"
        return CheckRow("N0", _TITLE, Mark.FAIL, scientific(value), _LIMIT, detail)
    after = worst(tensor_distances(comparison.original.init, comparison.rewritten.start))
    if after[1] > _ROUNDING:
        detail = f"could not be made equal: {short(after[0])} still differs by {scientific(after[1])}"
        return CheckRow("N0", _TITLE, Mark.INCONCLUSIVE, scientific(value), _LIMIT, detail)
    return CheckRow(
        "N0",
        _TITLE,
        Mark.INFO,
        scientific(value),
        _LIMIT,
        (problem or _why_another_draw(comparison.original))
        + ". All later checks ran from the original's weights, transplanted",
    )


def _why_another_draw(original: Observation) -> str:
    if original.ranks_disagree:
        return "each rank has weights of its own in the original too, and cuts other slices from them"
    return "another random draw (weights are initialised after sharding); same mean and variance"


def _buffers_row(original: Observation, found: Observation) -> CheckRow:
    """A buffer that `to_empty` left uninitialised, such as a rotary cache, trains wrongly without any error."""
    different = []
    for name in sorted(original.buffers.keys() & found.buffers.keys()):
        (total, squares), (other_total, other_squares) = original.buffers[name], found.buffers[name]
        off = max(relative(squares, other_squares), relative(total, other_total) if abs(total) > 1e-6 else 0.0)
        if off > _BUFFER_TOLERANCE:
            different.append(name)
    missing = sorted(original.buffers.keys() ^ found.buffers.keys())
    detail = f"differ: {some(different)}" if different else ""
    if missing:
        detail = (detail + "; " if detail else "") + f"only on one side: {some(missing)}"
    mark = Mark.FAIL if detail else Mark.PASS
    return CheckRow("N0b", "initial buffers", mark, f"{len(original.buffers)}", scientific(_BUFFER_TOLERANCE), detail)


def _same_law(a: Sketch, b: Sketch | None) -> bool:
    """Whether both could be draws from one distribution: mean and variance at six sigmas; constants must be equal."""
    if b is None or a.numel != b.numel or not a.owned or not b.owned:
        return False
    n = a.owned
    mean_a, mean_b = a.total / n, b.total / n
    var_a, var_b = a.squares / n - mean_a**2, b.squares / n - mean_b**2
    scale = max(mean_a**2, mean_b**2, 1e-20)
    if min(var_a, var_b) < 1e-9 * scale:
        return max(var_a, var_b) < 1e-9 * scale and relative(mean_a, mean_b) < 1e-6
    if abs(mean_a - mean_b) > _SIGMAS * math.sqrt((var_a + var_b) / n):
        return False
    return abs(math.log(var_a / var_b)) < _SIGMAS * math.sqrt(4.0 / n)


def _repeated(run: Observation) -> list[str]:
    """Sharded weights whose slices begin alike on two ranks, without being constant."""
    found = []
    for name, sketch in run.init.items():
        heads = [head for head in sketch.heads.values() if len(head) > 1 and len(set(head)) > 1]
        sharded = sketch.replicas < len(sketch.heads)
        copies = len(heads) - len(set(heads))
        if sharded and copies >= sketch.replicas and len(set(heads)) < len(heads) / sketch.replicas:
            found.append(name)
    return sorted(found)
