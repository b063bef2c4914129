"""The parent's end of the server that forks the ranks of a check's runs, see `fsdp_migrate.probe.server`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

_START_S = 300.0
_END_S = 5.0


class Process(Protocol):
    """What a run is watched by: a process that was started, here or by the server."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...


class Server:
    """One server process, which imports what `words` name. `start` raises OSError when it does not answer: then there
    is torchrun."""

    def __init__(self, python: str, env: Mapping[str, str], words: str, log: Path) -> None:
        with log.open("w") as sink:
            self._process = subprocess.Popen(
                [python, "-m", "fsdp_migrate.probe.server", words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                env=dict(env),
                cwd=log.parent,
                start_new_session=True,
            )
        self._buffer = b""
        self._is_ready = False

    def start(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], log: Path, world: int) -> Forked:
        if not self._is_ready and "ready" not in (self.answer(_START_S) or {}):
            raise OSError("the server did not start")
        self._is_ready = True
        order = {"argv": list(argv), "cwd": str(cwd), "env": dict(env), "log": str(log), "world": world}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        answer = self.answer(_START_S)
        if answer is None or "pid" not in answer:
            raise OSError("the server does not answer")
        return Forked(self, int(answer["pid"]))

    def answer(self, timeout: float) -> dict[str, Any] | None:
        """The next one; None when there is none in time, or the server has gone."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._process.stdout], [], [], left)[0]:
                return None
            read = os.read(self._process.stdout.fileno(), 65536)
            if not read:
                return {"exit": -signal.SIGKILL}  # the server has gone, and its runs with it
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        if not self._is_ready:  # it may import for a while yet
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Forked:
    """One run of the server."""

    def __init__(self, server: Server, pid: int) -> None:
        self._server, self.pid = server, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._ask(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ask(86400.0 if timeout is None else timeout)
        if code is None:
            raise subprocess.TimeoutExpired("the server", timeout or 0.0)
        return code

    def send_signal(self, sig: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, sig)

    def _ask(self, timeout: float) -> int | None:
        if self.returncode is None and (answer := self._server.answer(timeout)) is not None:
            self.returncode = int(answer["exit"])
        return self.returncode
