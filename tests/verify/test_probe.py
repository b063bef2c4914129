"""What the probe sees of odd programs, and that seeing nothing never passes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fsdp_migrate.verify import Failure, Verdict
from fsdp_migrate.verify.checks.comparison import Comparison
from fsdp_migrate.verify.observation import Observation
from fsdp_migrate.verify.run import compare_observations
from tests.verify.runs import STEPS, Fleet

pytestmark = pytest.mark.dist


def observed(fleet: Fleet, script: str, *extra: str, world: int = 2, **options: object) -> Observation:
    result = fleet.program(script, options, *extra, world=world)
    assert not isinstance(result, Failure), result
    return result


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        ("leave", "swallowed an error"),  # rank 1 leaves its loop, rank 0 swallows what that does to its collectives
        ("plain", "no FSDP1 group"),
        ("no loss", "no loss"),
    ],
)
def test_nothing_seen_is_never_a_pass(fleet: Fleet, trouble: str, why: str) -> None:
    run = observed(fleet, "troubled.py", "--max-steps", "4", trouble=trouble)
    report = compare_observations(Comparison(run, run, (run,), 4))
    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.exit_code == 2
    assert why in report.reason


def test_an_unmigrated_program_fails_for_its_leftovers(fleet: Fleet) -> None:
    run = observed(fleet, "original.py")
    report = compare_observations(Comparison(run, run, (run,), STEPS))
    assert report.failed == ("V0",)
    assert "still has 3 FSDP1 groups" in report.reason


def test_an_unsharded_program_fails(fleet: Fleet) -> None:
    run = observed(fleet, "original.py")
    report = compare_observations(Comparison(run, replace(run, units=()), (run,), STEPS))
    assert "V0" in report.failed


def test_a_stop_that_a_bare_except_swallows_still_stops(fleet: Fleet) -> None:
    run = observed(fleet, "troubled.py", "--max-steps", "4", trouble="bare except")
    assert run.steps == (4, 4)
    assert run.ends == ("max_steps", "max_steps")


def test_a_program_that_ends_early_is_said(fleet: Fleet) -> None:
    run = observed(fleet, "migrated.py", steps=3)
    original = observed(fleet, "original.py", steps=3)
    report = compare_observations(Comparison(original, run, (original,), STEPS))
    assert report.verdict is Verdict.PASS
    assert "only 3 of 8 steps" in report.row("V0").detail


def test_a_write_outside_the_scratch_copy_is_seen(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = Path(__file__).with_name("written-outside.txt")
    monkeypatch.setenv("OUTSIDE", str(outside))
    try:
        run = observed(fleet, "troubled.py", "--scratch", ".", trouble="absolute")
    finally:
        outside.unlink(missing_ok=True)
    assert run.outside == (str(outside),)


def test_the_perturbation_leaves_random_numbers_alone(fleet: Fleet) -> None:
    """With dropout, a perturbation that draws from the global state would shift every mask."""
    options = {"dropout": 0.3}
    plain = observed(fleet, "original.py", **options)
    moved = observed(fleet, "original.py", "--perturb", "1", **options)
    first, second = plain.losses[0].values, moved.losses[0].values
    assert first != second or plain.losses[-1].values != moved.losses[-1].values
    assert all(abs(a - b) < 1e-5 * abs(a) for a, b in zip(first, second, strict=True))


def test_a_full_disk_ends_the_rank_at_once(tmp_path: Path) -> None:
    (tmp_path / "rank-00000.jsonl").symlink_to("/dev/full")
    code = (
        "import sys; from pathlib import Path; from fsdp_migrate.probe.writer import RecordWriter\n"
        "RecordWriter(Path(sys.argv[1]), 0).write('meta')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 74
    assert "No space left" in done.stderr
