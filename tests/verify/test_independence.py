"""Runs of one check that could find each other's files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fsdp_migrate.verify import Mark, Verdict
from fsdp_migrate.verify.checks.comparison import Comparison
from fsdp_migrate.verify.independence import moved_arguments, own_arguments
from fsdp_migrate.verify.run import compare_observations
from tests.verify.test_unseen import run


def test_an_absolute_folder_becomes_each_runs_own(tmp_path: Path) -> None:
    root, data, scratch = tmp_path / "tree", tmp_path / "data", Path("/scratch")
    root.mkdir()
    data.mkdir()
    given = ("--out", f"{root}/runs", f"--logs={tmp_path}/new", f"--data={data}", "/", "-", "3", "a/b", "--x=/")
    assert own_arguments(given, (Path("/other"), root), scratch) == (
        "--out",
        "/scratch/runs",
        f"--logs=/scratch/outside{tmp_path}/new",
        f"--data={data}",
        *given[4:],
    )
    assert moved_arguments(given, (root,)) == [f"{root}/runs", f"--logs={tmp_path}/new"]


@pytest.mark.parametrize(
    ("wrong", "verdict", "mark"), [(0.0, Verdict.PASS, Mark.INFO), (1.0, Verdict.INCONCLUSIVE, Mark.INCONCLUSIVE)]
)
def test_a_file_that_one_run_left_for_another(wrong: float, verdict: Verdict, mark: Mark) -> None:
    before, after = run("FSDP1"), run("FSDP2")
    settings = ([{"lr": 0.1 + wrong}],) * 4
    after = replace(after, optimizers=(replace(after.optimizers[0], hyper=settings),))
    shared = {"/out/last.pt": ("original", "rewritten")}
    found = compare_observations(Comparison(before, after, (before,), 4), read_back=shared)
    assert found.verdict is verdict
    assert found.row("V1").mark is mark
    assert "`rewritten` read /out/last.pt, which the run `original` had written" in found.row("V1").detail
    assert found.warnings or wrong
