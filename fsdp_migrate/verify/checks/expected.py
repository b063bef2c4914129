"""X0 and X1: the loss of an upgraded program, against the tolerance that the user states, and its float8 layers."""

from __future__ import annotations

import math

from fsdp_migrate.verify.checks.comparison import Comparison, relative, scientific
from fsdp_migrate.verify.observation import Observation
from fsdp_migrate.verify.report import CheckRow, Mark

_TAIL = 10
"""The losses of the last tenth of the steps are averaged: a single batch says little."""


def expected_loss(comparison: Comparison) -> list[CheckRow]:
    """The mean loss of the last tenth of the steps, over all ranks and micro-batches."""
    expected = comparison.expect
    if expected is None or expected.loss is None:
        return []
    before, after = _tail(comparison.original), _tail(comparison.rewritten)
    if before is None or after is None:
        return [CheckRow("X0", "expected loss", Mark.NOT_AVAILABLE, detail="no loss was seen")]
    value = relative(before, after) if math.isfinite(after) else math.inf
    mark = Mark.PASS if value <= expected.loss else Mark.FAIL
    detail = f"loss at the end {before:.6g} -> {after:.6g}"
    return [CheckRow("X0", "expected loss", mark, scientific(value), scientific(expected.loss), detail)]


def float8_layers(comparison: Comparison) -> list[CheckRow]:
    """How many linear layers compute in float8, and whether the scales of their weights are computed behind each step.

    Other scales are those of weights that are gone, or cost an all-reduce a weight.
    """
    seen, title = comparison.rewritten.float8, "float8 linear layers"
    if comparison.expect is None or seen is None:
        return []
    before = comparison.original.float8.linears if comparison.original.float8 is not None else 0
    value = f"{before} -> {seen.linears}, scales behind {seen.precomputed} of {seen.steps} steps"
    mark, detail = Mark.PASS, f"{seen.numel} elements are gathered in float8"
    if not seen.linears:
        mark, detail = Mark.FAIL, "torchao is imported, and no layer computes in float8"
    elif seen.precomputed < seen.steps:
        mark, detail = Mark.FAIL, "the scales are not those of the weights after each step"
    return [CheckRow("X1", title, mark, value, "all steps", detail)]


def _tail(run: Observation) -> float | None:
    steps = min(run.steps, default=0)
    last = [value for loss in run.losses if loss.step >= steps - max(1, steps // _TAIL) for value in loss.values]
    return sum(last) / len(last) if last else None
