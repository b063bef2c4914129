"""One rank from start to end: listen, run the program, write how it ended, leave."""

from __future__ import annotations

import importlib.util
import os
import platform
import random
import runpy
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

from fsdp_migrate.probe.dry_run import pretend_world
from fsdp_migrate.probe.hooks import install
from fsdp_migrate.probe.outside import Outside
from fsdp_migrate.probe.own_copy import import_from
from fsdp_migrate.probe.passing import is_ours, passed_on
from fsdp_migrate.probe.process import dump_stacks_on_signal
from fsdp_migrate.probe.recorder import Recorder
from fsdp_migrate.probe.settings import Settings, Target
from fsdp_migrate.probe.spawn import follow_spawned_ranks
from fsdp_migrate.probe.stopping import StopRun, leave
from fsdp_migrate.probe.writer import SCHEMA


def run_program(settings: Settings, target: Target) -> None:
    """Run `target` as `__main__`: as one rank where a launcher set one, else as the parent of the ranks it will spawn.

    As a rank it does not return.
    """
    sys.argv = [target.name, *target.args]
    import_from(settings.scratch, settings.trees)
    if settings.dry_run_world is not None:
        pretend_world(settings.dry_run_world)
    rank, world = _place(settings)
    if rank is None:
        follow_spawned_ranks(settings)
        _run(target)
        return
    recorder = begin(settings, rank, world)
    follow_spawned_ranks(settings)
    watched(recorder, lambda: _run(target))


def _place(settings: Settings) -> tuple[int | None, int]:
    """(rank, world) from torchrun's variables, or SLURM's; rank None when neither is there."""
    for rank, world in (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")):
        if rank in os.environ and world in os.environ:
            return int(os.environ[rank]), int(os.environ[world])
    return (0, 1) if settings.processes == 1 else (None, settings.processes)


def begin(settings: Settings, rank: int, world: int) -> Recorder:
    """Install the probe in this process, and write the first record."""
    recorder = Recorder(settings, rank, world)
    dump_stacks_on_signal(settings.out, rank)
    recorder.writer.write(
        "meta",
        schema=SCHEMA,
        rank=rank,
        world=world,
        pid=os.getpid(),
        host=socket.gethostname(),
        torch=torch.__version__,
        python=platform.python_version(),
        redirect=settings.redirect,
    )
    if settings.scratch is not None:
        recorder.outside = Outside(settings.scratch, settings.out, recorder.writer)
        recorder.outside.install()
    install(recorder)
    if settings.seed is not None:
        _seed(settings.seed)
    return recorder


def watched(recorder: Recorder, program: Callable[[], object]) -> None:
    """Run `program`, write the `end` record, and leave the process with the program's own exit code."""
    code = 0
    try:
        program()
        recorder.finish("finished")
    except StopRun:
        pass
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        recorder.finish("finished" if code == 0 else "exit", code=code)
    except BaseException as error:
        if not recorder.stopping:
            code = 1
            text = traceback.format_exc()
            recorder.finish(
                "exception",
                type=type(error).__name__,
                message=_message(error),
                traceback=text[-8000:],
                ours=is_ours(error),
            )
            sys.stderr.write(text)
    peers = 1 if recorder.settings.dry_run_world is not None else recorder.world
    leave(recorder.settings.out, peers if code == 0 else 0, 0 if recorder.stopping else code)


def _message(error: BaseException) -> str:
    """A program's exception may raise again when it is asked for its words, in whatever way."""
    try:
        return str(error)[:2000]
    except Exception:
        return "(its message cannot be printed)"


def _seed(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    if importlib.util.find_spec("numpy") is not None:
        import numpy

        numpy.random.seed(seed % 2**32)


def _run(target: Target) -> None:
    if target.as_module:
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        passed_on(runpy.run_module, target.name, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(target.name).resolve().parent))
        passed_on(runpy.run_path, target.name, run_name="__main__")
