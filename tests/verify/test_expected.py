"""`--expect`: what is said of an upgraded program, with records as a GPU run leaves them (no GPU is needed here)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fsdp_migrate.verify import Mark, ParityReport, Verdict
from fsdp_migrate.verify.checks.comparison import Comparison
from fsdp_migrate.verify.expectation import expectation
from fsdp_migrate.verify.observation import Float8, Loss, Observation
from fsdp_migrate.verify.run import compare_observations
from tests.verify.test_unseen import run

MIB = float(2**20)
GPU = {"peaks": (100 * MIB,) * 4, "seconds": (9.0, 0.2, 0.2, 0.2)}
UPGRADED = {"peaks": (80 * MIB,) * 4, "seconds": (9.0, 0.15, 0.15, 0.15)}
FLOAT8 = Float8(linears=12, numel=98_304, steps=3, precomputed=3)


def compared(expect: str, **after: Any) -> ParityReport:
    before = replace(run("FSDP2"), **GPU)
    upgraded: Observation = replace(before, **{**UPGRADED, **after})
    return compare_observations(Comparison(before, upgraded, (before,), 4, expect=expectation(expect)))


def losses(share: float) -> dict[str, Any]:
    return {"losses": tuple(Loss(step, ((1.0 + share) / (step + 1), 1.0 + share)) for step in range(4))}


def test_time_and_memory_of_a_gpu_stand_side_by_side() -> None:
    found = compared("loss within 2%", float8=FLOAT8)
    assert (found.verdict, found.is_upgrade) == (Verdict.PASS, True)
    assert found.row("T0").value == "0.2000 -> 0.1500"
    assert found.row("M0").value == "100 -> 80 MiB"
    assert found.warnings == ()


def test_an_upgrade_that_costs_more_says_so() -> None:
    found = compared("same", peaks=(150 * MIB,) * 4, seconds=(9.0, 0.3, 0.3, 0.3))
    assert found.verdict is Verdict.PASS
    assert [said.partition(" (")[0] for said in found.warnings] == [
        "the rewritten program is 50% slower",
        "the rewritten program is 50% bigger",
    ]


@pytest.mark.parametrize(("share", "verdict"), [(0.009, Verdict.PASS), (0.03, Verdict.FAIL), (-0.03, Verdict.FAIL)])
def test_the_loss_is_held_to_what_was_stated(share: float, verdict: Verdict) -> None:
    found = compared("loss within 1%", **losses(share))
    assert found.verdict is verdict
    assert found.row("X0").limit == "1.0e-02"


def test_the_same_is_held_to_what_rounding_allows() -> None:
    assert compared("same").verdict is Verdict.PASS
    assert compared("same", **losses(0.01)).verdict is Verdict.FAIL


COUNTED = {
    "all": (FLOAT8, Mark.PASS, "0 -> 12, scales behind 3 of 3 steps"),
    "no layer": (replace(FLOAT8, linears=0, numel=0), Mark.FAIL, "0 -> 0, scales behind 3 of 3 steps"),
    "a step without scales": (replace(FLOAT8, precomputed=2), Mark.FAIL, "0 -> 12, scales behind 2 of 3 steps"),
    "rows, which need none": (Float8(12, 0, 0, 0), Mark.PASS, "0 -> 12, scales behind 0 of 0 steps"),
}


@pytest.mark.parametrize(("seen", "mark", "value"), COUNTED.values(), ids=COUNTED)
def test_float8_layers_are_counted_and_their_scales_are_seen(seen: Float8, mark: Mark, value: str) -> None:
    row = compared("loss within 2%", float8=seen).row("X1")
    assert (row.mark, row.value) == (mark, value)


@pytest.mark.parametrize("text", ["", "equal", "loss within", "loss within 2", "loss within -1%"])
def test_what_cannot_be_held_to_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be 'same'"):
        expectation(text)
