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


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return int(s.getsockname()[1])


def run_job(job: dict[str, Any]) -> None:
    """Fork the ranks of one run and wait for them; a rank that takes too long is killed."""
    port = free_port()
    children = [_fork_rank(job, rank, port) for rank in range(job["world"])]
    deadline = time.monotonic() + RUN_TIMEOUT_S
    while children and time.monotonic() < deadline:
        children = [pid for pid in children if os.waitpid(pid, os.WNOHANG)[0] == 0]
        time.sleep(0.01)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


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

    for job in json.loads(Path(sys.argv[1]).read_text()):
        run_job(job)
