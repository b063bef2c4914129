"""The fixtures: what is written of each FSDP1 program. On ranks: tests/parity/test_fixtures.py."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from codemods.api import Level
from fsdp_migrate.cli import app
from fsdp_migrate.findings import Report
from fsdp_migrate.pipeline import Options, migrate
from fsdp_migrate.project.imports import program_files
from fsdp_migrate.project.source import read_source

FIXTURES = Path(__file__).parent.parent / "fixtures"
WITH_TWIN = sorted(path.parent.name for path in FIXTURES.glob("*/fsdp2"))
ALL = sorted(path.parent.name for path in FIXTURES.glob("*/fsdp1"))

# Where the tool's output differs from what a person wrote, and why that is right as well.
OWN_WORDING = {
    "batch_norm": "a test of every module in the place of names from two classes",
    "checkpoint": "optimizer state goes through the support module, which clones the steps that FSDP1 files share",
    "helpers_package": "no_sync comes from the support module instead of a copy in the loop",
    "meta_rank0": "values are given by functions that serve any model, in FSDP1's order",
    "own_list": "the same statements with other names and comments",
    "policy_by_flag": "the branches stay the user's",
    "trainer_class": "the clip call is not split into two statements; the loop variable avoids a name in use",
    "units_by_size": "the same function; the mesh is made in a statement of its own",
}


def rewritten(name: str, folder: Path) -> tuple[Path, Report]:
    """A migrated copy of a fixture."""
    target = folder / name
    shutil.copytree(FIXTURES / name / "fsdp1", target)
    report = migrate([read_source(path) for path in program_files([target / "train.py"])], Options())
    for change in report.changes:
        change.path.write_text(change.after)
    return target, report


@pytest.mark.parametrize("name", ALL)
def test_second_rewrite_changes_nothing(name: str, tmp_path: Path) -> None:
    target, first = rewritten(name, tmp_path)
    assert first.changes
    again = migrate([read_source(path) for path in program_files([target / "train.py"])], Options())
    assert again.changes == ()
    assert again.errors == ()


@pytest.mark.parametrize("name", ALL)
def test_what_rewrite_leaves_silently_is_silent_in_check(name: str, tmp_path: Path) -> None:
    """What it left to a person `check` still finds: test_todo.py. Every test of a rule asserts both, in helpers.py."""
    folder = tmp_path / name
    shutil.copytree(FIXTURES / name / "fsdp1", folder)
    (folder / ".git").mkdir()  # the root of a project, so that nothing above is looked at
    runner = CliRunner()
    done = runner.invoke(app, ["rewrite", str(folder)])
    assert done.exit_code == 0, done.output
    checked = runner.invoke(app, ["check", str(folder)])
    assert checked.exit_code == 0, checked.output


@pytest.mark.parametrize("name", ALL)
def test_nothing_is_left_to_a_person(name: str, tmp_path: Path) -> None:
    _, report = rewritten(name, tmp_path)
    assert [finding for finding in report.findings if finding.level is Level.MANUAL] == []
    assert not any('NotImplementedError("fsdp-migrate' in change.after for change in report.changes)


@pytest.mark.parametrize("name", [name for name in WITH_TWIN if name not in OWN_WORDING])
def test_output_is_what_a_person_wrote(name: str, tmp_path: Path) -> None:
    target, _ = rewritten(name, tmp_path)
    for expected in sorted((FIXTURES / name / "fsdp2").rglob("*.py")):
        written = target / expected.relative_to(FIXTURES / name / "fsdp2")
        assert written.read_text() == expected.read_text()
