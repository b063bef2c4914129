"""The whole way: trees, scratch copies, torchrun or mp.spawn, records, checks, reports."""

from __future__ import annotations

import io
import json
import socket
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from fsdp_migrate.verify import CheckRequest, ParityReport, Verdict, dry_run, run_check
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


def test_a_program_for_gpus_that_spawns_its_ranks_runs_on_cpus(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    report = run_check(spawned(tmp_path, WORKERS="1"), lambda *progress: told.append(progress))
    assert report.verdict is Verdict.PASS, text_of(report)
    assert any("redirected" in limit for limit in report.limits)
    assert ("original", 6, 6) in told
    _every_report_holds_it(report)


def spawned(tmp_path: Path, **env: str) -> CheckRequest:
    """A program that broadcasts on FSDP1, and where `UNSYNCED` is set does not; on FSDP2 it never does."""
    with socket.socket() as s:
        s.bind(("localhost", 0))
        env["FREE_PORT"] = str(s.getsockname()[1])
    before, after = make_tree(tmp_path / "before", api=1), make_tree(tmp_path / "after", api=2)
    return CheckRequest(before / "cuda_spawned.py", after / "cuda_spawned.py", 2, steps=6, env=env)


def test_a_program_that_does_not_seed_itself_is_run_again_from_a_seed(tmp_path: Path) -> None:
    report = run_check(spawned(tmp_path, UNSEEDED="", UNSYNCED=""))
    assert report.verdict is Verdict.PASS, text_of(report)
    assert any("--seed 0" in limit for limit in report.limits)


def test_ranks_that_draw_weights_of_their_own_start_from_the_original_ones(tmp_path: Path) -> None:
    report = run_check(spawned(tmp_path, SEEDED_BY_RANK="", UNSYNCED=""))
    assert report.verdict is Verdict.PASS, text_of(report)
    assert report.row("N0").detail.startswith("each rank has weights of its own in the original too")


def test_a_seed_does_not_hide_a_lost_broadcast(tmp_path: Path) -> None:
    report = run_check(spawned(tmp_path, UNSEEDED=""))
    assert report.verdict is Verdict.FAIL, text_of(report)
    assert "sync_module_states" in report.row("N0").detail


def _every_report_holds_it(report: ParityReport) -> None:
    assert "PASS" in text_of(report)
    plain = json.loads(to_json(report))
    assert plain["verdict"] == "PASS"
    assert len(plain["curves"]["original_loss"]) == 6
    suite = ElementTree.fromstring(to_junit(report).encode()).find("testsuite")
    assert suite is not None
    assert suite.get("failures") == "0"
    page = to_html(report)
    assert page.count("<svg") == 4
    assert "<script" not in page
    assert "http" not in page, "the page must not need the network"


def test_a_dry_run_shows_a_wrong_structure_at_64_ranks(tmp_path: Path) -> None:
    before, after = make_tree(tmp_path / "before"), make_tree(tmp_path / "after", mutation="root_only")
    report = dry_run(CheckRequest(before / "original.py", after / "migrated.py", 2), 64)
    assert report.failed == ("S1", "S3"), text_of(report)
    assert report.verdict is Verdict.FAIL
