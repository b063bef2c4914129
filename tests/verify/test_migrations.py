"""Right migrations pass; wrong ones are rejected, each by the check that is there for it."""

from __future__ import annotations

import json

import pytest

from fsdp_migrate.verify import CheckRow, Mark, ParityReport, Verdict
from fsdp_migrate.verify.resume import judge
from fsdp_migrate.verify.thresholds import coarsest
from tests.verify.cases import (
    CALIBRATION,
    HOLD_OUT,
    RESUMED,
    RESUMED_WRONGLY,
    RIGHT,
    RIGHT_HOLD_OUT,
    RIGHT_LATER,
    UNDECIDED,
)
from tests.verify.runs import Case, Fleet, Program

pytestmark = pytest.mark.dist


@pytest.fixture(scope="session")
def judged(fleet: Fleet) -> Fleet:
    """All runs of this file, made in one go."""
    fleet.observe([*RIGHT, *CALIBRATION, *RIGHT_HOLD_OUT, *RIGHT_LATER, *HOLD_OUT, *UNDECIDED])
    fleet.resumed([RESUMED, *RESUMED_WRONGLY])
    return fleet


def named(cases: list[Case]) -> list[object]:
    return [pytest.param(case, id=case.name) for case in cases]


@pytest.mark.parametrize("case", named([*RIGHT, *RIGHT_HOLD_OUT, *RIGHT_LATER]))
def test_a_right_migration_passes(judged: Fleet, case: Case) -> None:
    report = judged.report(case)
    assert report.verdict is Verdict.PASS, _why(report)
    assert report.exit_code == 0


@pytest.mark.parametrize("case", named([*CALIBRATION, *HOLD_OUT]))
def test_a_wrong_migration_is_rejected_by_the_expected_check(judged: Fleet, case: Case) -> None:
    assert case.caught_by, "a case must say which check is there for it"
    report = judged.report(case)
    assert report.verdict is Verdict.FAIL, _why(report)
    assert report.exit_code == 1
    assert set(case.caught_by) <= set(report.failed), _why(report)


@pytest.mark.parametrize("case", named(UNDECIDED))
def test_a_mistake_of_the_original_leaves_it_undecided(judged: Fleet, case: Case) -> None:
    report = judged.report(case)
    assert report.verdict is Verdict.INCONCLUSIVE, _why(report)
    assert report.exit_code == 2
    assert "stale root weights" in report.row("N4").detail


def test_a_right_checkpoint_is_gone_on_from(judged: Fleet) -> None:
    row = resumed(judged, RESUMED)
    assert row.mark is Mark.PASS
    assert (row.value, row.detail) == ("0", "fits best from step 4 on, 4 steps compared")


@pytest.mark.parametrize("program", RESUMED_WRONGLY, ids=lambda program: json.loads(program.options)["mutation"])
def test_a_wrong_checkpoint_is_rejected(judged: Fleet, program: Program) -> None:
    assert resumed(judged, program).mark is Mark.FAIL


def resumed(fleet: Fleet, program: Program) -> CheckRow:
    """Check R."""
    return judge("R", "resumed", fleet.seen(program), fleet.seen_resumed(program), coarsest([]))


def _why(report: ParityReport) -> str:
    return "\n".join(f"{row.id} {row.mark.value} {row.value} / {row.limit} {row.detail}" for row in report.rows)
