"""What the probe sees of odd programs, and that seeing nothing never passes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fsdp_migrate.verify import Verdict
from fsdp_migrate.verify.checks.comparison import Comparison
from fsdp_migrate.verify.observation import Observation
from fsdp_migrate.verify.run import compare_observations
from tests.verify.runs import STEPS, Fleet, Program

pytestmark = pytest.mark.dist


Observed = Callable[[Program], Observation]
OUTSIDE = Path(__file__).with_name("written-outside.txt")
FOUR = ("--max-steps", "4")

LEAVES = Program.of("troubled.py", *FOUR, trouble="leave")
PLAIN = Program.of("troubled.py", *FOUR, trouble="plain")
NO_LOSS = Program.of("troubled.py", *FOUR, trouble="no loss")
BARE_EXCEPT = Program.of("troubled.py", *FOUR, trouble="bare except")
ABSOLUTE = Program.of("troubled.py", "--scratch", ".", trouble="absolute", outside=str(OUTSIDE))
ORIGINAL = Program.of("original.py")
SHORT_ORIGINAL = Program.of("original.py", steps=3)
SHORT_MIGRATED = Program.of("migrated.py", steps=3)
ON_CPU = (*FOUR, "--redirect", "--processes", "2")
RECIPE = Program.of("cuda_recipe.py", *ON_CPU, api=1)
RECIPE_MOVED = Program.of("cuda_recipe.py", *ON_CPU, "--perturb", "1", api=1)
RECIPE_MIGRATED = Program.of("cuda_recipe.py", *ON_CPU, api=2)
DROPOUT = Program.of("original.py", dropout=0.3)
DROPOUT_MOVED = Program.of("original.py", "--perturb", "1", dropout=0.3)
EVERY = [
    LEAVES,
    PLAIN,
    NO_LOSS,
    BARE_EXCEPT,
    ABSOLUTE,
    ORIGINAL,
    SHORT_ORIGINAL,
    SHORT_MIGRATED,
    RECIPE,
    RECIPE_MOVED,
    RECIPE_MIGRATED,
    DROPOUT,
    DROPOUT_MOVED,
]


@pytest.fixture(scope="module")
def observed(fleet: Fleet) -> Iterator[Observed]:
    """All runs of this file, made in one go."""
    fleet.programs(EVERY)
    yield fleet.seen
    OUTSIDE.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (LEAVES, "swallowed an error"),  # rank 1 leaves its loop, rank 0 swallows what that does to its collectives
        (PLAIN, "no FSDP1 group"),
        (NO_LOSS, "no loss"),
    ],
)
def test_nothing_seen_is_never_a_pass(observed: Observed, program: Program, why: str) -> None:
    run = observed(program)
    report = compare_observations(Comparison(run, run, (run,), 4))
    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.exit_code == 2
    assert why in report.reason


def test_an_unmigrated_program_fails_for_its_leftovers(observed: Observed) -> None:
    run = observed(ORIGINAL)
    report = compare_observations(Comparison(run, run, (run,), STEPS))
    assert report.failed == ("V0",)
    assert "still has 3 FSDP1 groups" in report.reason


def test_an_unsharded_program_fails(observed: Observed) -> None:
    run = observed(ORIGINAL)
    report = compare_observations(Comparison(run, replace(run, units=()), (run,), STEPS))
    assert "V0" in report.failed


def test_a_stop_that_a_bare_except_swallows_still_stops(observed: Observed) -> None:
    run = observed(BARE_EXCEPT)
    assert run.steps == (4, 4)
    assert run.ends == ("max_steps", "max_steps")


def test_a_program_that_ends_early_is_said(observed: Observed) -> None:
    run = observed(SHORT_MIGRATED)
    original = observed(SHORT_ORIGINAL)
    report = compare_observations(Comparison(original, run, (original,), STEPS))
    assert report.verdict is Verdict.PASS
    assert "only 3 of 8 steps" in report.row("V0").detail


def test_a_program_for_gpus_alone_is_compared_on_cpus(observed: Observed) -> None:
    before, moved, after = observed(RECIPE), observed(RECIPE_MOVED), observed(RECIPE_MIGRATED)
    report = compare_observations(Comparison(before, after, (moved,), 4))
    assert report.verdict is Verdict.PASS, report.reason
    assert (before.fsdp1, after.fsdp2) == (6, 6)
    assert before.autocast == after.autocast == "torch.float16"


def test_a_write_outside_the_scratch_copy_is_seen(observed: Observed) -> None:
    assert observed(ABSOLUTE).outside == (str(OUTSIDE),)


def test_the_perturbation_leaves_random_numbers_alone(observed: Observed) -> None:
    """With dropout, a perturbation that draws from the global state would shift every mask."""
    plain, moved = observed(DROPOUT), observed(DROPOUT_MOVED)
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
