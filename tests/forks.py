"""Runs many distributed programs: torch is imported once a session, each rank of each run is a fork of that process.

A run of a second through torchrun takes ten more, in which the agent and every rank import torch. What is tested with
forks is what a program does; tests/verify/test_end_to_end.py and test_commands.py go through torchrun.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
AT_ONCE = 4
"""Ranks of runs that do not need each other, on two cores: some always wait for a connection or for each other."""


@dataclass(frozen=True)
class Job:
    """`python COMMAND` on `world` ranks, with the variables that torchrun sets."""

    command: Sequence[str]
    """A script or `-m` and a module, and its arguments."""
    cwd: str
    world: int
    log: str
    """The file that all ranks print to."""
    limit_s: float = 180.0
    """Against a hang: on idle cores most take a few seconds, with other work beside them ten times as long."""


def run(jobs: Sequence[Job], at_once: int = 1, path: Sequence[Path] = (), env: Mapping[str, str] | None = None) -> None:
    """Run the jobs in order, as many as make `at_once` ranks at a time; `path` is where their modules are found."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    found = [str(ROOT), *map(str, path)]
    order = Order([asdict(job) for job in jobs], at_once, found, dict(env or {}))
    server.stdin.write(json.dumps(asdict(order)) + "\n")
    server.stdin.flush()
    assert server.stdout.readline() == "done\n", "the process that forks the ranks has ended"


@cache
def _server() -> subprocess.Popen[str]:
    """It ends with this process, which closes its input."""
    quiet = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.forks"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env={**os.environ, **quiet})


@dataclass(frozen=True)
class Order:
    """What is asked of that process; `env` is for the ranks."""

    jobs: Sequence[Mapping[str, Any]]
    at_once: int
    path: Sequence[str]
    env: Mapping[str, str]

    def go(self) -> None:
        waiting, running = [Job(**job) for job in self.jobs], list[_Running]()
        while waiting or running:
            running = [each for each in running if not each.is_over()]
            busy = sum(each.job.world for each in running)
            if waiting and (not running or busy + waiting[0].world <= self.at_once):
                running.append(_Running(waiting.pop(0), self))
            else:
                time.sleep(0.01)


class _Running:
    """The forked ranks of one run; a run that takes too long is killed."""

    def __init__(self, job: Job, order: Order) -> None:
        self.job = job
        port = _free_port()
        self._children = [_fork_rank(job, order, rank, port) for rank in range(job.world)]
        self._deadline = time.monotonic() + job.limit_s

    def is_over(self) -> bool:
        if time.monotonic() > self._deadline:
            for pid in self._children:
                os.kill(pid, signal.SIGKILL)
        self._children = [pid for pid in self._children if os.waitpid(pid, os.WNOHANG)[0] == 0]
        return not self._children


_ports: set[int] = set()


def _free_port() -> int:
    """One that no other run of this process was given: it is bound only later."""
    while True:
        with socket.socket() as s:
            s.bind(("localhost", 0))
            port = int(s.getsockname()[1])
        if port not in _ports:
            _ports.add(port)
            return port


def _fork_rank(job: Job, order: Order, rank: int, port: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    log = os.open(job.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(job.cwd)
    sys.path[1:1] = order.path[1:]
    tempfile.tempdir = None
    world = str(job.world)
    os.environ.update(
        order.env,
        PYTHONPATH=os.pathsep.join(order.path),
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=world,
        LOCAL_WORLD_SIZE=world,
        MASTER_ADDR="localhost",
        MASTER_PORT=str(port),
    )
    code = 1
    try:
        _as_main(job.command)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the interpreter's own end is where gloo sometimes aborts, after all the work is done


def _as_main(command: Sequence[str]) -> None:
    """What `python COMMAND` does."""
    if command[0] == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = list(command[1:])
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(command[0]).resolve().parent)
        sys.argv = list(command)
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    # What all forks share. The first optimizer of a process imports torch._dynamo, which takes longer than most runs.
    import torch._dynamo
    import torch.distributed.checkpoint.state_dict
    import torch.distributed.fsdp  # noqa: F401

    import fsdp_migrate.probe.session  # noqa: F401

    for line in sys.stdin:
        Order(**json.loads(line)).go()
        print("done", flush=True)
