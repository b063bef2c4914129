"""`check`, `record` and `compare` as a user calls them; each option runs for real once."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.verify.trees import make_tree

pytestmark = pytest.mark.dist

ROOT = Path(__file__).parents[2]


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    """The program before and after its migration."""
    return make_tree(tmp_path / "before", api=1), make_tree(tmp_path / "after", api=2)


def start(folder: Path, *arguments: object, **env: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "fsdp_migrate", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    pipe = subprocess.PIPE
    return subprocess.Popen(line, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)


def run(folder: Path, *arguments: object, **env: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    process = start(folder, *arguments, **env)
    out, errors = process.communicate(timeout=240)
    return process.returncode, out, errors


def test_a_check_with_checkpoints(trees: tuple[Path, Path], tmp_path: Path) -> None:
    before, after = trees
    page = tmp_path / "page.html"
    code, out, errors = run(
        after, "check", "resumable.py", "--baseline", before / "resumable.py", "--run-cpus", 2, "--steps", 8,
        "--resume-args=--resume", "--from-baseline-checkpoint", "--floor-runs", 2, "--hang-timeout", 60,
        "--start-timeout", 200, "--python", sys.executable, "--torchrun-args", "--max-restarts 0", "--init", "as-is",
        "--redirect", "off", "--spawns", "no", "--keep", tmp_path / "kept", "--html", page, "--output-format", "json",
    )  # fmt: skip
    report = json.loads(out)
    assert (code, report["verdict"]) == (0, "PASS"), report
    rows = {row["id"]: row for row in report["rows"]}
    assert rows["R"]["mark"] == rows["C"]["mark"] == "PASS"
    assert "from step 4 on" in rows["R"]["detail"]
    assert {folder.name for folder in (tmp_path / "kept").iterdir()} >= {"original", "rewritten", "floor-1", "floor-2"}
    assert len(report["curves"]["original_loss"]) == 8
    assert not (before / "checkpoint").exists(), "the program wrote into the user's tree"
    assert "the original is" in errors
    assert "<svg" in page.read_text()


def test_recordings_of_a_cluster_compare(tmp_path: Path) -> None:
    """The original as a module on two nodes, the rewritten program, which initialises late, under a launcher."""
    before, after = make_tree(tmp_path / "before", api=1), make_tree(tmp_path / "after", api=2, meta=True)
    one, two = tmp_path / "one", tmp_path / "two"
    with socket.socket() as s:
        s.bind(("localhost", 0))
        meeting = f"localhost:{s.getsockname()[1]}"
    program = ("-m", "jobs.train", "--steps", 6)
    nodes = [
        start(
            before, "record", *program, "--run-cpus", 1, "--nnodes", 2, "--node-rank", rank, "--rdzv-endpoint", meeting,
            "--output", one, "--save-init",
        )
        for rank in range(2)
    ]  # fmt: skip
    for node in nodes:
        out, errors = node.communicate(timeout=240)
        assert node.returncode == 0, errors
        assert f"Recorded the original program in {one}: 6 steps on 2 ranks, and again 1 times" in out
    launcher = shlex.join([sys.executable, str(after / "fake_srun.py"), "{n}", "{probe}"]).replace("'", "")
    code, out, errors = run(
        after, "record", *program, "--run-cpus", 2, "--launcher", launcher, "--output", two, "--init-from", one
    )
    assert code == 0, errors
    assert "Recorded the rewritten program" in out
    code, out, _ = run(tmp_path, "compare", one, two, "--output-format", "json", "--html", "page.html")
    report = json.loads(out)
    assert (code, report["verdict"], report["world_size"]) == (0, "PASS", 2), report
    assert "from the original's weights, transplanted" in next(r["detail"] for r in report["rows"] if r["id"] == "N0")
    assert (tmp_path / "page.html").exists()
    code, out, _ = run(tmp_path, "compare", two, one)
    assert code == 2
    assert "recording of the rewritten program" in out


def test_a_dry_run(trees: tuple[Path, Path]) -> None:
    before, after = trees
    code, out, _ = run(after, "check", "resumable.py", "--baseline", before / "resumable.py", "--dry-run-world", 64)
    assert code == 0, out
    assert "estimated peak memory" in out
    assert "the same structure and communication on 64 ranks" in out
