"""Programs that crash, hang or are killed: the right verdict, a message that helps, and no process left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fsdp_migrate.verify import CheckRequest, Failure, Verdict, run_check
from tests.verify.trees import make_tree, processes_with

pytestmark = pytest.mark.dist


def failure_of(tmp_path: Path, trouble: str, **env: str) -> Failure:
    """What the check says of a program in this trouble."""
    script = make_tree(tmp_path / "tree", trouble=trouble) / "troubled.py"
    report = run_check(CheckRequest(script, script, 2, steps=4, hang_timeout=4, env=env, keep=tmp_path / "kept"))
    time.sleep(0.2)
    assert not processes_with(str(tmp_path)), "processes were left behind"
    assert report.verdict is Verdict.COULD_NOT_RUN
    assert report.exit_code == 2
    assert report.failure is not None
    return report.failure


def test_the_rank_that_raised_first_is_named_with_its_traceback(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, "raise")
    assert failure.rank == 1
    assert "OfOurOwn: no such batch" in failure.message
    assert "in get_into_trouble" in failure.traceback


def test_a_hang_shows_where_each_rank_is(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, "hang")
    assert failure.rank == 1
    assert "wrote nothing for" in failure.message
    assert "get_into_trouble" in failure.message
    assert "--- rank 0" in failure.traceback
    assert "--- rank 1" in failure.traceback


def test_an_exit_code_is_reported(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, "exit")
    assert failure.rank == 1
    assert "sys.exit(3)" in failure.message


def test_a_killed_rank_is_named(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, "kill")
    assert failure.rank == 1
    assert "killed by signal 9" in failure.message or "vanished" in failure.message  # what torchrun saw first
    assert "memory" in failure.hint


def test_a_crash_that_does_not_come_again_is_told_and_no_failure(tmp_path: Path) -> None:
    script = make_tree(tmp_path / "tree", trouble="crash once") / "troubled.py"
    env = {"CRASHED": str(tmp_path / "crashed")}
    report = run_check(CheckRequest(script, script, 2, steps=4, env=env))
    assert report.failure is None, report.reason
    assert any("the run `original` was made twice" in warning for warning in report.warnings)


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("localhost", 0))
        busy.listen()
        failure = failure_of(tmp_path, "port", BUSY_PORT=str(busy.getsockname()[1]))
    assert "port" in failure.message
    assert "port" in failure.hint


def test_a_rank_that_leaves_early_is_named(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, "leave early")
    assert failure.rank == 1
    assert "ended after 2 steps, while rank 0 went on" in failure.message
    assert "same number of steps" in failure.hint


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, "disk")
    assert failure.rank == 1
    assert "disk full" in failure.message
    assert "TMPDIR" in failure.hint


def test_a_disk_that_cannot_be_written_at_all_is_no_traceback(tmp_path: Path) -> None:
    script = make_tree(tmp_path / "tree", trouble="plain") / "troubled.py"
    (tmp_path / "file").touch()
    report = run_check(CheckRequest(script, script, 2, keep=tmp_path / "file" / "kept"))
    assert report.exit_code == 2
    assert report.failure is not None
    assert "could not be written" in report.failure.message
    assert "--keep" in report.failure.hint


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (("--run-cpus", "2", "--python", "{no_torch}"), "torch cannot be imported", "fsdp-migrate[verify]"),
        (("--run-gpus", "8"), "--run-gpus 8 needs 8 CUDA devices; this machine shows 0", "Use --run-cpus 8"),
        (("--run-cpus", "2", "--nnodes", "2"), "the 2 nodes have no folder to meet in", "--keep DIR"),
    ],
)
def test_what_this_machine_cannot_do(tmp_path: Path, options: tuple[str, ...], message: str, hint: str) -> None:
    tree = make_tree(tmp_path / "tree", trouble="raise")
    no_torch = tmp_path / "python"
    no_torch.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    no_torch.chmod(0o755)
    began = time.monotonic()
    parent = check(tree, *(option.format(no_torch=no_torch) for option in options))
    out = " ".join(parent.communicate(timeout=60)[0].split())
    assert parent.returncode == 2
    assert message in out
    assert hint in out
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_check_leaves_no_process(tmp_path: Path, number: int, code: int) -> None:
    kept = tmp_path / "kept"
    parent = check(make_tree(tmp_path / "tree", trouble="hang"), "--run-cpus", "2", "--steps", "4", "--keep", str(kept))
    deadline = time.monotonic() + 120
    while not _some_step(kept):
        assert time.monotonic() < deadline, "no step was recorded"
        time.sleep(0.1)
    os.kill(parent.pid, number)
    _, errors = parent.communicate(timeout=90)
    assert parent.returncode == code
    assert "Traceback" not in errors
    time.sleep(0.2)
    assert not processes_with(str(tmp_path))


def check(tree: Path, *options: str) -> subprocess.Popen[str]:
    """The command, as a user starts it."""
    line = [sys.executable, "-m", "fsdp_migrate", "check", "troubled.py", "--baseline", "troubled.py", *options]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen(
        line, cwd=tree, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_as_in_a_terminal
    )


def _as_in_a_terminal() -> None:
    """A shell starts what runs in the background with Ctrl-C ignored, and that is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _some_step(kept: Path) -> bool:
    return any('"kind": "step"' in path.read_text() for path in kept.glob("*/records/rank-*.jsonl"))
