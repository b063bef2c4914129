"""Runs many observed programs in one go: torch is imported once, each rank of each run is a fork of that process.

A parity check through torchrun spends most of its time importing torch. What is tested here is what the probe records
and how the checks judge it; tests/verify/test_end_to_end.py goes through torchrun.

    python -m tests.verify.fleet jobs.json      where jobs.json is a list of {"cwd", "probe": […], "world", "log"}
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

RUN_TIMEOUT_S = 60.0
PROCESSES = 4
"""Ranks at a time: some of them always wait for a connection, or for each other."""


_ports: set[int] = set()


def free_port() -> int:
    """One that no other run of this process was given: it is bound only later."""
    while True:
        with socket.socket() as s:
            s.bind(("localhost", 0))
            port = int(s.getsockname()[1])
        if port not in _ports:
            _ports.add(port)
            return port


def run_jobs(jobs: list[dict[str, Any]]) -> None:
    """Run them in order, as many at a time as make `PROCESSES` ranks."""
    waiting, running = list(jobs), list[_Running]()
    while waiting or running:
        running = [run for run in running if not run.is_over()]
        busy = sum(run.job["world"] for run in running)
        if waiting and (not running or busy + waiting[0]["world"] <= PROCESSES):
            running.append(_Running(waiting.pop(0)))
        else:
            time.sleep(0.01)


class _Running:
    """The forked ranks of one run; a run that takes too long is killed."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        port = free_port()
        self._children = [_fork_rank(job, rank, port) for rank in range(job["world"])]
        self._deadline = time.monotonic() + RUN_TIMEOUT_S

    def is_over(self) -> bool:
        if time.monotonic() > self._deadline:
            for pid in self._children:
                os.kill(pid, signal.SIGKILL)
        self._children = [pid for pid in self._children if os.waitpid(pid, os.WNOHANG)[0] == 0]
        return not self._children


def _fork_rank(job: dict[str, Any], rank: int, port: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    from fsdp_migrate.probe.session import run_program
    from fsdp_migrate.probe.settings import parse

    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(job["cwd"])
    world = str(job["world"])
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=world,
        LOCAL_WORLD_SIZE=world,
        MASTER_ADDR="localhost",
        MASTER_PORT=str(port),
    )
    settings, target = parse(job["probe"])
    if settings.redirect:
        from fsdp_migrate.probe.redirect import redirect_cuda_to_cpu

        redirect_cuda_to_cpu(settings.processes)
    run_program(settings, target)
    os._exit(99)  # not reached: run_program leaves the process


if __name__ == "__main__":
    # What all forks share. The first optimizer of a process imports torch._dynamo, which takes longer than the run.
    import torch._dynamo  # noqa: F401

    import fsdp_migrate.probe.session  # noqa: F401

    run_jobs(json.loads(Path(sys.argv[1]).read_text()))
