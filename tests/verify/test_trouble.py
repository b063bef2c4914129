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
    assert "memory" in failure.cure


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("localhost", 0))
        busy.listen()
        failure = failure_of(tmp_path, "port", BUSY_PORT=str(busy.getsockname()[1]))
    assert "port" in failure.message
    assert "port" in failure.cure


def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", trouble="hang")
    script = (
        "import sys; from pathlib import Path; from fsdp_migrate.verify import CheckRequest, run_check;"
        "run_check(CheckRequest(Path(sys.argv[1]), Path(sys.argv[1]), 2, steps=4, keep=Path(sys.argv[2])))"
    )
    kept = tmp_path / "kept"
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tree / "troubled.py"), str(kept)],
        cwd=Path(__file__).parents[2],
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not _some_step(kept):
        time.sleep(0.1)
    os.kill(parent.pid, signal.SIGINT)
    _, errors = parent.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors
    time.sleep(0.2)
    assert not processes_with(str(tmp_path))


def _some_step(kept: Path) -> bool:
    return any('"kind": "step"' in path.read_text() for path in kept.glob("*/records/rank-*.jsonl"))
