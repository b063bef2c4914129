"""`python -m fsdp_migrate.probe.server`: imports torch once, and forks the ranks of one run after another from there.

A run of seconds costs ten more through torchrun, in which the agent and every rank import torch, and what the program
imports, anew. Orders come as JSON lines on standard input; each is answered with the process id of the run, and then
with its exit code. The ranks get the variables that torchrun sets, and their failures are reported in its words.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from fsdp_migrate.probe.process import die_with_parent

_GRACE_S = 10.0


def serve(redirect: bool, processes: int, preload: Sequence[Sequence[str]]) -> None:
    """Until standard input ends. `preload` are modules, each with names that are imported from it."""
    die_with_parent()
    orders, answers = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what libraries print when they are imported is no answer
    _import(redirect, processes, preload)
    with os.fdopen(orders) as lines, os.fdopen(answers, "w", buffering=1) as out:
        print(json.dumps({"ready": True}), file=out)
        for line in lines:
            pid = os.fork()
            if not pid:
                os._exit(_supervise(json.loads(line)))
            print(json.dumps({"pid": pid}), file=out)
            _, status = os.waitpid(pid, 0)
            print(json.dumps({"exit": os.waitstatus_to_exitcode(status)}), file=out)


def _import(redirect: bool, processes: int, preload: Sequence[Sequence[str]]) -> None:
    """What all ranks share. A process's first optimizer imports torch._dynamo, which takes longer than most runs."""
    if redirect:
        from fsdp_migrate.probe.redirect import redirect_cuda_to_cpu

        redirect_cuda_to_cpu(processes)

    import fsdp_migrate.probe.session  # noqa: F401

    for name, *parts in preload:
        with contextlib.suppress(Exception):  # the program will say so itself
            module = importlib.import_module(name)
            for part in parts:
                getattr(module, part, None)


def _supervise(order: dict[str, Any]) -> int:
    """Start the ranks; when one fails, end the others, as torchrun does."""
    os.setsid()
    die_with_parent()
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    port = _free_port()
    world = int(order["world"])
    ranks = {_fork_rank(order, rank, world, port): rank for rank in range(world)}
    failed = False
    deadline = 0.0
    while ranks:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            if failed and time.monotonic() > deadline:
                _signal(ranks, signal.SIGKILL)
            time.sleep(0.02)
            continue
        code, rank = os.waitstatus_to_exitcode(status), ranks.pop(pid, None)
        if code and rank is not None:
            os.write(2, f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {pid})\n".encode())
        if code and not failed:
            failed, deadline = True, time.monotonic() + _GRACE_S
            _signal(ranks, signal.SIGTERM)
    return int(failed)


def _signal(ranks: dict[int, int], number: int) -> None:
    for pid in ranks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _fork_rank(order: dict[str, Any], rank: int, world: int, port: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        die_with_parent()
        os.chdir(order["cwd"])
        sys.path[0] = order["cwd"]
        multiprocessing: Any = sys.modules["multiprocessing.process"]
        multiprocessing.ORIGINAL_DIR = order["cwd"]  # where children that are spawned look for the script
        os.environ.clear()
        os.environ.update(order["env"])
        os.environ.update(_variables(rank, world, port))
        _forget_common_randomness()
        from fsdp_migrate.probe.session import run_program
        from fsdp_migrate.probe.settings import parse

        run_program(*parse(order["argv"]))
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _variables(rank: int, world: int, port: int) -> dict[str, str]:
    same = {name: str(world) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE")}
    own = {name: str(rank) for name in ("RANK", "LOCAL_RANK", "ROLE_RANK")}
    node = {"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_NAME": "default"}
    agent = {"TORCHELASTIC_RUN_ID": "fsdp-migrate", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0"}
    return {**same, **own, **node, **agent, "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}


def _forget_common_randomness() -> None:
    """Forks would all draw the same numbers where processes of their own do not: a program that is not seeded has to
    show that."""
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return int(s.getsockname()[1])


if __name__ == "__main__":
    serve(*json.loads(sys.argv[1]))
