"""The parent side without processes: preflight, scratch copies, sources, renderers, verdicts."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from fsdp_migrate.config import CHECKS
from fsdp_migrate.verify import CheckRequest, CheckRow, Curves, Failure, Mark, ParityReport, Setting, Verdict, run_check
from fsdp_migrate.verify.catalogue import UNSEEDED, catalogue
from fsdp_migrate.verify.launch import redirects, spawns_itself
from fsdp_migrate.verify.preflight import Machine, objection
from fsdp_migrate.verify.report import verdict_of, with_allowed
from fsdp_migrate.verify.report_html import to_html
from fsdp_migrate.verify.report_json import to_json
from fsdp_migrate.verify.report_junit import to_junit
from fsdp_migrate.verify.report_text import render
from fsdp_migrate.verify.scratch import copy_tree
from fsdp_migrate.verify.sources import program_files
from fsdp_migrate.verify.thresholds import coarsest

GPUS = CheckRequest(Path("a.py"), Path("a.py"), 8, device="cuda", env={"CUDA_VISIBLE_DEVICES": "3"})
ROW = CheckRow("S1", "shard groups", Mark.PASS, "3 -> 3", "equal")


def test_the_parent_side_imports_neither_torch_nor_libcst() -> None:
    code = "import sys, fsdp_migrate.verify; print([m for m in ('torch', 'libcst') if m in sys.modules])"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"


def test_too_few_gpus_says_what_to_do_instead() -> None:
    failure = objection(GPUS, Machine("2.13.0+cu130", 1, True))
    assert failure is not None
    assert failure.message == (
        "--run-gpus 8 needs 8 CUDA devices; this machine shows 1 (CUDA_VISIBLE_DEVICES=3, torch 2.13.0+cu130)."
    )
    assert failure.hint.startswith("Use --run-gpus 1, or --run-cpus 8 (")
    assert "--launcher" in failure.hint


def test_no_gpu_does_not_offer_zero_gpus() -> None:
    failure = objection(GPUS, Machine("2.13.0+cpu", 0, True))
    assert failure is not None
    assert failure.hint.startswith("Use --run-cpus 8")


@pytest.mark.parametrize(
    ("machine", "message", "hint"),
    [
        (Machine(None, 0, False, "No module named 'torch'"), "torch cannot be imported", "fsdp-migrate[verify]"),
        (Machine("2.5.1", 8, True), "no public fully_shard", "2.6"),
        (Machine("2.8.0", 8, True), "cannot train on the CPU, or not rightly", "2.9"),
        (Machine("2.13.0", 0, False), "without gloo", "gloo"),
    ],
)
def test_a_machine_that_cannot_run_it_is_told_why(machine: Machine, message: str, hint: str) -> None:
    failure = objection(replace(GPUS, device="cpu"), machine)
    assert failure is not None
    assert message in failure.message
    assert hint in failure.hint


@pytest.mark.parametrize(
    ("request_", "machine"),
    [
        (GPUS, Machine("2.13.0", 8, True)),
        (GPUS, Machine("2.6.0", 8, True)),
        (replace(GPUS, device="cpu"), Machine("2.9.1", 0, True)),
        (replace(GPUS, device="cpu", dry_run_world=64), Machine("2.7.1", 0, True)),
        (replace(GPUS, launcher="srun {probe}"), Machine("2.13.0", 0, True)),
    ],
)
def test_a_machine_that_can_is_not_objected_to(request_: CheckRequest, machine: Machine) -> None:
    assert objection(request_, machine) is None


def test_a_missing_script_and_a_python_without_torch_could_not_run(tmp_path: Path) -> None:
    report = run_check(CheckRequest(tmp_path / "none.py", tmp_path / "none.py", 2))
    assert report.verdict is Verdict.COULD_NOT_RUN
    assert report.exit_code == 2
    assert "none.py does not exist" in report.reason
    (tmp_path / "a.py").touch()
    script = tmp_path / "a.py"
    report = run_check(CheckRequest(script, script, 2, python=str(tmp_path / "no-python")))
    assert report.exit_code == 2
    assert report.failure is not None
    assert "fsdp-migrate[verify]" in report.failure.hint


def test_large_files_are_linked_to_and_named(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "data").mkdir(parents=True)
    (source / "__pycache__").mkdir()
    (source / "train.py").write_text("x")
    (source / "data" / "big.bin").write_bytes(b"0" * 1000)
    linked = copy_tree(source, tmp_path / "copy", limit=500)
    assert linked == [source / "data" / "big.bin"]
    assert (tmp_path / "copy" / "data" / "big.bin").is_symlink()
    assert not (tmp_path / "copy" / "train.py").is_symlink()
    assert not (tmp_path / "copy" / "__pycache__").exists()


def test_a_program_is_the_script_and_what_it_imports(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("from .inner import thing")
    (tmp_path / "pkg" / "inner.py").write_text("import torch\nthing = torch.cuda")
    (tmp_path / "train.py").write_text("import os, pkg")
    (tmp_path / "other.py").write_text("mp.spawn(main)")
    (tmp_path / "spawns.py").write_text("import train\nmp.spawn(main)")
    (tmp_path / "broken.py").write_text("def (")
    names = [path.name for path in program_files(tmp_path, "train.py", as_module=False)]
    assert sorted(names) == ["__init__.py", "inner.py", "train.py"]
    assert [path.name for path in program_files(tmp_path, "broken.py", as_module=False)] == ["broken.py"]
    assert [path.name for path in program_files(tmp_path, "pkg.inner", as_module=True)] == ["inner.py"]
    train, spawns = tmp_path / "train.py", tmp_path / "spawns.py"
    assert redirects(CheckRequest(train, train, 2))
    assert not redirects(CheckRequest(tmp_path / "other.py", tmp_path / "other.py", 2))
    assert not spawns_itself(CheckRequest(train, train, 2), "original")
    assert spawns_itself(CheckRequest(spawns, spawns, 2), "original")


@pytest.mark.parametrize(
    ("text", "itself"),
    [
        (
            "def run(rank):\n    log = getenv('RANK')\nif __name__ == '__main__':\n    mp.spawn(run, nprocs=2)\n",
            True,
        ),
        (
            "def run(rank):\n    os.environ['RANK'] = rank\n\n\ndef main():\n    mp.spawn(run, nprocs=2)\nmain()\n",
            True,
        ),
        ("if 'RANK' in os.environ:\n    run()\nelse:\n    mp.spawn(run, nprocs=2)\n", False),
        (
            "def main():\n    mp.spawn(run, nprocs=2)\nrank = int(os.environ['RANK'])\nrun(rank) if rank else main()\n",
            False,
        ),
    ],
)
def test_a_program_that_always_spawns_does_so_whatever_it_asks_of_a_rank(
    text: str, itself: bool, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    assert spawns_itself(CheckRequest(script, script, 2), "original") is itself


@pytest.mark.parametrize(
    ("marks", "verdict"),
    [
        ([Mark.PASS, Mark.INFO], Verdict.PASS),
        ([Mark.PASS, Mark.ALLOWED], Verdict.PASS),
        ([Mark.PASS, Mark.FAIL, Mark.INCONCLUSIVE], Verdict.FAIL),
        ([Mark.PASS, Mark.INCONCLUSIVE], Verdict.INCONCLUSIVE),
        ([Mark.PASS, Mark.NOT_AVAILABLE], Verdict.INCONCLUSIVE),
        ([Mark.INFO], Verdict.INCONCLUSIVE),
        ([], Verdict.INCONCLUSIVE),
    ],
)
def test_what_could_not_be_looked_at_never_passes(marks: list[Mark], verdict: Verdict) -> None:
    assert verdict_of(tuple(replace(ROW, mark=mark) for mark in marks))[0] is verdict


def test_only_the_failure_that_was_allowed_is_allowed() -> None:
    failed = replace(ROW, mark=Mark.FAIL, detail="14 -> 8")
    rows = with_allowed((failed, replace(failed, id="S3")), ("S3",))
    assert [row.mark for row in rows] == [Mark.FAIL, Mark.ALLOWED]
    assert "--allow S3" in rows[1].detail


def test_the_coarsest_dtype_decides_the_thresholds() -> None:
    assert coarsest(["float32", "bfloat16+float32"]).name == "bfloat16"
    assert coarsest(["float32", "torch.float16"]).name == "float16"
    assert not coarsest([]).low


def test_every_renderer_shows_a_failure_and_odd_text() -> None:
    bad = "<b>[red]\x1b[31m & nan"
    report = ParityReport(
        Verdict.COULD_NOT_RUN,
        f"rank 1 raised {bad}",
        rows=(replace(ROW, mark=Mark.FAIL, detail=bad),),
        curves=Curves(original_loss=(1.0, float("nan"), 2.0), rewritten_loss=(1.0,), floor_difference=(0.0, 1e-7)),
        failure=Failure("original", bad, "do this", 1, traceback=bad),
        warnings=(bad,),
    )
    console = Console(file=io.StringIO(), width=120)
    render(report, console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "[red]" in text
    assert "do this" in text
    assert json.loads(to_json(report))["curves"]["original_loss"] == [1.0, "nan", 2.0]
    suite = ElementTree.fromstring(to_junit(report).encode())
    assert len(suite.findall(".//failure")) == 1
    assert len(suite.findall(".//error")) == 1
    page = to_html(report)
    assert "<b>[red]" not in page
    assert "&lt;b&gt;" in page


def test_the_page_shows_the_limit_and_memory_in_readable_units() -> None:
    curves = Curves(
        original_loss=(3.0,) * 20,
        rewritten_loss=(3.0,) * 20,
        loss_difference=(0.0, *[2e-7] * 19),
        floor_difference=(1e-7,) * 20,
        loss_limit=(8e-7,) * 20,
        original_peak=(3.0 * 2**30,) * 20,
        rewritten_peak=(None,) * 20,
    )
    report = ParityReport(Verdict.PASS, "equal", (replace(ROW, mark=Mark.FAIL),), curves, warnings=("23% slower",))
    page = to_html(report)
    assert "Peak CUDA memory, GiB" in page
    assert '<path class="line limit"' in page
    assert '<p class="warning doubt">⚠ 23% slower</p>' in page
    assert '<tr class="fail-row">' in page
    steps = re.findall(r'text-anchor="middle">(\d+)<', page.split("</svg>")[0])
    assert steps == ["0", "5", "10", "15"]
    small = to_html(replace(report, curves=replace(curves, original_peak=(5.0 * 2**20,) * 20)))
    assert "Peak CUDA memory, MiB" in small


LONG = CheckRow(
    "N3", "first gradients", Mark.FAIL, detail="w" * 5000, items=tuple(f"block.{n}.weight" for n in range(400))
)


def text_of(report: ParityReport, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width)
    render(report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_long_lists_are_cut_for_people_and_whole_for_programs() -> None:
    report = ParityReport(Verdict.FAIL, "N3 " + LONG.detail, (LONG,))
    assert len(text_of(report)) < 2500
    assert to_html(report).count("w" * 700) == 0
    assert json.loads(to_json(report))["rows"][0]["items"] == list(LONG.items)
    assert len(json.loads(to_json(report))["reason"]) > 5000


def test_every_report_ends_with_the_next_step() -> None:
    failed = ParityReport(Verdict.FAIL, "S3", (replace(ROW, id="S3", mark=Mark.FAIL),))
    assert "next: Compare `reshard_after_forward`" in text_of(failed)
    assert "fsdp-migrate explain S3" in failed.next_step
    unseeded = replace(ROW, id="N0", mark=Mark.INCONCLUSIVE, detail=f"they differ by 2.1: {UNSEEDED}")
    assert ParityReport(Verdict.INCONCLUSIVE, "", (unseeded,)).next_step.startswith(
        "Seed it in every process, or check"
    )
    assert "--run-gpus" in ParityReport(Verdict.PASS, "", (ROW,)).next_step
    assert (
        "explain N4"
        in ParityReport(Verdict.INCONCLUSIVE, "", (replace(ROW, id="N4", mark=Mark.INCONCLUSIVE),)).next_step
    )
    assert "code>reshard_after_forward</code" in to_html(failed)


def test_the_page_says_what_was_checked() -> None:
    setting = Setting(
        "train.py", "fsdp-migrate check train.py --run-cpus 2", "git HEAD", "git 1a2b3c4+", "Python 3", "now"
    )
    page = to_html(ParityReport(Verdict.PASS, "equal", (ROW,), setting=setting))
    for value in (setting.command, setting.rewritten, setting.original, "what this is", "@media print"):
        assert value in page


def test_every_check_has_its_page() -> None:
    assert set(CHECKS) <= set(catalogue())
    for about in catalogue().values():
        assert about.compares, about.id
        assert about.part("Limit"), about.id
        assert about.causes, about.id
        assert about.cure, about.id
        assert "{" not in about.docs.replace("{probe}", "")
