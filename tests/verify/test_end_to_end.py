"""The whole way: trees, scratch copies, torchrun or mp.spawn, records, checks, reports."""

from __future__ import annotations

import io
import json
import socket
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from fsdp_migrate.verify import CheckRequest, Mark, ParityReport, Verdict, compare, dry_run, record, run_check
from fsdp_migrate.verify.report_html import to_html
from fsdp_migrate.verify.report_json import to_json
from fsdp_migrate.verify.report_junit import to_junit
from fsdp_migrate.verify.report_text import render
from tests.verify.trees import make_tree

pytestmark = pytest.mark.dist


def text_of(report: ParityReport) -> str:
    console = Console(file=io.StringIO(), width=200)
    render(report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_right_migration_passes_with_its_checkpoints(tmp_path: Path) -> None:
    before, after = make_tree(tmp_path / "before", api=1), make_tree(tmp_path / "after", api=2)
    told: list[tuple[str, int, int]] = []
    request = CheckRequest(
        before / "resumable.py",
        after / "resumable.py",
        2,
        steps=8,
        resume_args=("--resume",),
        from_baseline_checkpoint=True,
    )
    report = run_check(request, lambda *progress: told.append(progress))
    assert report.verdict is Verdict.PASS, text_of(report)
    assert report.row("R").mark is Mark.PASS
    assert report.row("C").mark is Mark.PASS
    assert "from step 4 on" in report.row("R").detail
    assert ("original", 8, 8) in told
    assert not (before / "checkpoint").exists(), "the program wrote into the user's tree"
    _every_report_holds_it(report)


def _every_report_holds_it(report: ParityReport) -> None:
    assert "PASS" in text_of(report)
    plain = json.loads(to_json(report))
    assert plain["verdict"] == "PASS"
    assert len(plain["curves"]["original_loss"]) == 8
    suite = ElementTree.fromstring(to_junit(report).encode()).find("testsuite")
    assert suite is not None
    assert suite.get("failures") == "0"
    page = to_html(report)
    assert page.count("<svg") == 4
    assert "<script" not in page
    assert "http" not in page, "the page must not need the network"


def test_a_checkpoint_without_optimizer_state_is_caught(tmp_path: Path) -> None:
    before = make_tree(tmp_path / "before", api=1)
    after = make_tree(tmp_path / "after", api=2, mutation="optimizer_not_loaded")
    scripts = before / "resumable.py", after / "resumable.py"
    report = run_check(CheckRequest(*scripts, 2, steps=8, floor_runs=0, resume_args=("--resume",)))
    assert report.verdict is Verdict.FAIL
    assert report.failed == ("R",)


def test_a_program_for_gpus_that_spawns_its_ranks_runs_on_cpus(tmp_path: Path) -> None:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        port = str(s.getsockname()[1])
    before, after = make_tree(tmp_path / "before", api=1), make_tree(tmp_path / "after", api=2)
    env = {"FREE_PORT": port}
    report = run_check(CheckRequest(before / "cuda_spawned.py", after / "cuda_spawned.py", 2, steps=6, env=env))
    assert report.verdict is Verdict.PASS, text_of(report)
    assert any("redirected" in limit for limit in report.limits)


def test_recordings_made_apart_compare_the_same(tmp_path: Path) -> None:
    before, after = make_tree(tmp_path / "before"), make_tree(tmp_path / "after", mutation="root_only")
    request = CheckRequest(before / "original.py", after / "migrated.py", 2, steps=6, floor_runs=0)
    assert record(request, "original", tmp_path / "one") is None
    assert record(request, "rewritten", tmp_path / "two") is None
    report = compare(tmp_path / "one", tmp_path / "two")
    assert report.failed == ("S1", "S3")
    swapped = compare(tmp_path / "two", tmp_path / "one")
    assert swapped.verdict is Verdict.COULD_NOT_RUN
    assert "recording of the rewritten program" in swapped.reason


@pytest.mark.parametrize(("mutation", "failed"), [("", ()), ("root_only", ("S1", "S3"))])
def test_a_dry_run_shows_the_structure_at_64_ranks(tmp_path: Path, mutation: str, failed: tuple[str, ...]) -> None:
    before, after = make_tree(tmp_path / "before"), make_tree(tmp_path / "after", mutation=mutation)
    report = dry_run(CheckRequest(before / "original.py", after / "migrated.py", 2), 64)
    assert report.failed == failed, text_of(report)
    assert report.verdict is (Verdict.FAIL if failed else Verdict.PASS)
    assert "estimate" in report.row("M1").title
