"""The FSDP2 fixtures with each upgrade that applies: before and after run on two ranks, and are compared."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fsdp_migrate.project.imports import program_files
from fsdp_migrate.project.source import read_source
from fsdp_migrate.upgrade import upgrade
from fsdp_migrate.verify import CheckRequest, Failure, ParityReport, Verdict
from fsdp_migrate.verify.expectation import expectation
from tests.verify.together import check_together

FIXTURES = Path(__file__).parents[2] / "fixtures"
UNITS = {"reshard_after_forward": "2", "prefetch": "True"}
CASES = {
    **dict.fromkeys(("quickstart", "accumulation", "batch_norm", "mixed_precision"), (UNITS, "same")),
    **dict.fromkeys(("trainer_class", "checkpoint", "own_list"), (UNITS, "same")),
}
"""What is asked for, and what may differ."""
DIFF_LINES = 15


def upgraded_copy(name: str, folder: Path) -> Path:
    """A fixture's FSDP2 program with its upgrades."""
    target = folder / name
    shutil.copytree(FIXTURES / name / "fsdp2", target)
    asked, _ = CASES[name]
    report = upgrade([read_source(path) for path in program_files([target / "train.py"])], asked)
    assert not [finding for finding in report.findings if finding.level.value == "manual"]
    for change in report.changes:
        change.path.write_text(change.after)
    return target


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ParityReport | Failure]:
    root = tmp_path_factory.mktemp("upgrades")
    requests = {}
    for name, (_, stated) in CASES.items():
        target, before = upgraded_copy(name, root / "upgraded"), FIXTURES / name / "fsdp2"
        requests[root / name] = CheckRequest(
            original=before / "train.py",
            rewritten=target / "train.py",
            original_root=before,
            rewritten_root=target,
            world_size=2,
            expect=expectation(stated),
        )
    return {home.name: report for home, report in check_together(requests).items()}


@pytest.mark.dist
@pytest.mark.parametrize("name", CASES)
def test_upgraded_program_trains_as_stated(name: str, checked: dict[str, ParityReport | Failure]) -> None:
    report = checked[name]
    assert isinstance(report, ParityReport), report
    assert report.verdict is Verdict.PASS, f"{report.reason} {report.failed}"
    assert report.is_upgrade


@pytest.mark.parametrize("option", UNITS)
def test_a_plain_program_changes_in_few_lines(option: str) -> None:
    path = FIXTURES / "quickstart" / "fsdp2" / "train.py"
    (change,) = upgrade([read_source(path)], {option: UNITS[option]}).changes
    before, after = change.before or "", change.after
    assert len(set(after.splitlines()) ^ set(before.splitlines())) <= DIFF_LINES
