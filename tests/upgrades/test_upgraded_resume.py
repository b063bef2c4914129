"""A program that resumes from what it saved while training went on: the same losses as without the upgrade."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fsdp_migrate.project.imports import program_files
from fsdp_migrate.project.source import read_source
from fsdp_migrate.upgrade import upgrade
from tests.verify.test_commands import run

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.dist
def test_a_program_resumes_from_an_asynchronous_checkpoint(tmp_path: Path) -> None:
    before, after = (Path(shutil.copytree(PROGRAMS, tmp_path / name)) for name in ("before", "after"))
    sources = [read_source(path) for path in program_files([after / "epochs.py"])]
    for change in upgrade(sources, {"async_checkpoint": "True"}).changes:
        change.path.write_text(change.after)
    code, out, errors = run(
        after, "check", "epochs.py", "--baseline", before / "epochs.py", "--run-cpus", 2, "--steps", 20,
        "--expect", "same", "--resume-args=--resume runs/epoch1", "--from-baseline-checkpoint",
        "--output-format", "json",
    )  # fmt: skip
    report = json.loads(out)
    assert (code, report["verdict"]) == (0, "PASS"), (report["reason"], errors)
    rows = {row["id"]: row for row in report["rows"]}
    assert rows["R"]["mark"] == rows["C"]["mark"] == "PASS"
    assert "from step 10 on" in rows["R"]["detail"]
