"""Right migrations pass; wrong ones are rejected, each by the check that is there for it."""

from __future__ import annotations

import pytest

from fsdp_migrate.verify import ParityReport, Verdict
from tests.verify.cases import CALIBRATION, HOLD_OUT, RIGHT, RIGHT_HOLD_OUT
from tests.verify.runs import Case, Fleet

pytestmark = pytest.mark.dist


@pytest.fixture(scope="session")
def judged(fleet: Fleet) -> Fleet:
    """All runs of this file, made in one go."""
    fleet.observe([*RIGHT, *CALIBRATION, *RIGHT_HOLD_OUT, *HOLD_OUT])
    return fleet


def named(cases: list[Case]) -> list[object]:
    return [pytest.param(case, id=case.name) for case in cases]


@pytest.mark.parametrize("case", named([*RIGHT, *RIGHT_HOLD_OUT]))
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


def _why(report: ParityReport) -> str:
    return "\n".join(f"{row.id} {row.mark.value} {row.value} / {row.limit} {row.detail}" for row in report.rows)
