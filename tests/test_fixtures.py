"""The fixtures: each FSDP1 program is migrated, both versions run on two ranks, and the runs are compared."""

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
from fsdp_migrate.verify import CheckRequest, Failure, ParityReport, Verdict

from .verify.together import check_together

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

SAVING = {
    path.relative_to(FIXTURES).parts[0] for path in FIXTURES.rglob("fsdp1/**/*.py") if "torch.save(" in path.read_text()
}

NOISE = {"shared_kwargs": "context.bias"}
"""What is trained by rounding alone: attention does not depend on its keys' bias, and Adam makes steps of noise."""


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


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, ParityReport | Failure]]:
    """All comparisons, each with the folder that its runs lie in."""
    root = tmp_path_factory.mktemp("fixtures")
    requests = {}
    for name in ALL:
        target, _ = rewritten(name, root / "rewritten")
        before = FIXTURES / name / "fsdp1"
        requests[root / name] = CheckRequest(
            original=before / "train.py",
            rewritten=target / "train.py",
            original_root=before,
            rewritten_root=target,
            world_size=2,
        )
    return {home.name: (home, report) for home, report in check_together(requests).items()}


@pytest.mark.dist
@pytest.mark.parametrize("name", ALL)
def test_migrated_program_trains_the_same_and_saves_the_same(
    name: str, checked: dict[str, tuple[Path, ParityReport | Failure]]
) -> None:
    home, report = checked[name]
    assert isinstance(report, ParityReport), report
    assert report.verdict is Verdict.PASS, f"{report.reason} {report.failed}"
    compare_files(name, home)


def compare_files(name: str, runs: Path) -> None:
    """Assert that both programs saved the same: keys, order, shapes, dtypes and values."""
    from .checkpoints.files import compare, described

    before, after = runs / "original" / "scratch", runs / "rewritten" / "scratch"
    saved = [sorted(str(path.relative_to(side)) for path in side.rglob("*.pt")) for side in (before, after)]
    assert saved[0] == saved[1]
    assert bool(saved[0]) is (name in SAVING)
    noise = NOISE.get(name, "nothing")
    for path in saved[0]:
        old, new = ([e for e in described(str(side / path)) if noise not in e[0]] for side in (before, after))
        compare(old, new)
