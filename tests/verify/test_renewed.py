"""Programs that begin anew: another optimizer, another model that is restored, weights drawn after sharding."""

from __future__ import annotations

import pytest

from fsdp_migrate.verify import Mark, ParityReport, Verdict
from fsdp_migrate.verify.checks.comparison import Comparison
from fsdp_migrate.verify.run import compare_observations, wants_transplant
from tests.verify.runs import STEPS, Fleet, Program

KINDS = ("optimizer", "model", "redrawn", "hybrid")


def programs(kind: str) -> tuple[Program, Program, Program]:
    options = {"kind": kind}
    steps = ("--max-steps", str(STEPS))
    before, after = (
        Program.of("renewed.py", *steps, api=1, **options),
        Program.of("renewed.py", *steps, api=2, **options),
    )
    return before, Program.of("renewed.py", *steps, "--perturb", "1", api=1, **options), after


@pytest.fixture(scope="module")
def judged(fleet: Fleet) -> dict[str, ParityReport]:
    fleet.programs([program for kind in KINDS for program in programs(kind)])
    return {
        kind: compare_observations(Comparison(before, after, (floor,), STEPS))
        for kind in KINDS
        for before, floor, after in [[fleet.seen(program) for program in programs(kind)]]
    }


@pytest.mark.dist
@pytest.mark.parametrize("kind", ["optimizer", "model", "hybrid"])
def test_the_same_training_passes(judged: dict[str, ParityReport], kind: str) -> None:
    assert judged[kind].verdict is Verdict.PASS, judged[kind].reason
    assert judged[kind].steps in (STEPS, STEPS + 1), "--steps is for the program, not for each optimizer it makes"


@pytest.mark.dist
def test_weights_that_are_drawn_after_sharding_are_transplanted(fleet: Fleet, judged: dict[str, ParityReport]) -> None:
    before, _, after = (fleet.seen(program) for program in programs("redrawn"))
    assert wants_transplant("auto", before, after)
    row = judged["redrawn"].row("N0")
    assert row.mark is Mark.FAIL
    assert "sync_module_states" not in row.detail
