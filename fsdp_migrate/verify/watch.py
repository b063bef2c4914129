"""Runs one command and watches it through the records its ranks write; leaves no process behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from fsdp_migrate.verify.forks import Process
from fsdp_migrate.verify.records import RankRecords, read_run

Progress = Callable[[int], None]
"""Called with the number of optimizer steps that every rank has made so far."""

_POLL_S = 0.1
_GRACE_S = 5.0
_AFTER_END_S = 15.0


@dataclass(frozen=True, slots=True)
class Watched:
    """How a run went. `hung` is the seconds without a record after which it was ended; None: it ended by itself. `room`
    is how many bytes were free where it wrote when it ended."""

    returncode: int
    ranks: list[RankRecords]
    hung: float | None
    stacks: dict[int, str]
    log: str
    room: int = 2**63


def watch(
    start: Callable[[], Process],
    out: Path,
    log: Path,
    hang_timeout: float,
    start_timeout: float,
    progress: Progress | None = None,
) -> Watched:
    """See a run through to its end. `out` is where the ranks write, `log` where the output goes.

    KeyboardInterrupt, and the SystemExit of a SIGTERM or SIGHUP, pass through after all processes are gone.
    """
    out.mkdir(parents=True, exist_ok=True)
    hung: float | None = None
    stacks: dict[int, str] = {}
    log.unlink(missing_ok=True)
    with _signals_end_the_run():
        process = start()
        try:
            hung = _wait(process, out, hang_timeout, start_timeout, progress)
            if hung is not None:
                stacks = _dump_stacks(out)
        finally:
            _end(process, out)
    room = shutil.disk_usage(out).free
    return Watched(
        process.returncode or 0,
        read_run(out),
        hung,
        stacks,
        log.read_text(errors="replace") if log.exists() else "",
        room,
    )


def launch(command: list[str], cwd: Path, env: Mapping[str, str], log: Path) -> Process:
    """A process of its own, in a session of its own."""
    with log.open("w") as sink:
        return subprocess.Popen(
            command, cwd=cwd, env=env, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
        )


@contextlib.contextmanager
def _signals_end_the_run() -> Iterator[None]:
    """A job that is cancelled, or whose terminal is closed, ends its processes as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():  # Python lets no other thread listen
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(
    process: Process, out: Path, hang_timeout: float, start_timeout: float, progress: Progress | None
) -> float | None:
    size, steps, since = 0, 0, time.monotonic()
    while process.poll() is None:
        time.sleep(_POLL_S)
        written = sum(path.stat().st_size for path in out.glob("rank-*.jsonl"))
        if written != size:
            size, since = written, time.monotonic()
            steps = _steps_made(out)
            if progress is not None:
                progress(steps)
        quiet = time.monotonic() - since
        if _all_ended(out):
            if quiet > _AFTER_END_S:
                return None  # the records are complete; what still runs is the program's winding down
        elif quiet > (hang_timeout if steps else start_timeout):
            return quiet
    return None


def _steps_made(out: Path) -> int:
    counts = [path.read_text(errors="replace").count('{"kind": "step"') for path in out.glob("rank-*.jsonl")]
    return min(counts, default=0)


def _all_ended(out: Path) -> bool:
    ranks = len(list(out.glob("rank-*.jsonl")))
    return 0 < ranks == len(list(out.glob("rank-*.done")))


def _dump_stacks(out: Path) -> dict[int, str]:
    """Ask each rank for its Python stacks."""
    for pid in _pids(out):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGUSR1)
    time.sleep(1.0)
    files = sorted(out.glob("rank-*.stack"))
    return {int(path.stem.removeprefix("rank-")): path.read_text(errors="replace") for path in files}


def _end(process: Process, out: Path) -> None:
    """torchrun first, so that it can end its workers; then its group; then each worker, which are in sessions of their
    own where signals to torchrun's group do not reach."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pid in _pids(out):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _pids(out: Path) -> list[int]:
    """Processes of the run that are still alive on this machine: the recorded ids, if they still belong to a probe."""
    metas = [rank.first("meta") for rank in read_run(out)]
    here = socket.gethostname()
    return [meta["pid"] for meta in metas if meta is not None and meta["host"] == here and _is_probe(meta["pid"])]


def _is_probe(pid: int) -> bool:
    """The id may have gone to someone else's process since."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return not Path("/proc").exists()
    return b"fsdp_migrate.probe" in words or b"multiprocessing" in words
