"""Programs that start their own ranks with `torch.multiprocessing.spawn`: the probe goes along into each child."""

from __future__ import annotations

import base64
import functools
import multiprocessing.spawn
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.multiprocessing

from fsdp_migrate.probe.own_copy import import_from
from fsdp_migrate.probe.passing import passed_on
from fsdp_migrate.probe.process import die_with_parent
from fsdp_migrate.probe.settings import Settings


def follow_spawned_ranks(settings: Settings) -> None:
    """Make `mp.spawn` and `start_processes` start each rank under the probe.

    `import torch.multiprocessing.spawn` yields the function and not the module, hence sys.modules.
    """
    module: Any = sys.modules["torch.multiprocessing.spawn"]
    start = module.start_processes

    @functools.wraps(start)
    def start_observed(fn: Any, args: Any = (), nprocs: int = 1, *rest: Any, **kwargs: Any) -> Any:
        if settings.dry_run_world is not None:  # this process is the one rank there is
            return passed_on(fn, 0, *args)
        own = replace(settings, processes=nprocs)
        _prepare_main(own)
        # Pickled apart: the child must install the probe before it imports what `fn` lives in.
        return passed_on(start, _observed_rank, (own, pickle.dumps(fn), *args), nprocs, *rest, **kwargs)

    @functools.wraps(module.spawn)
    def spawn_observed(
        fn: Any, args: Any = (), nprocs: int = 1, join: bool = True, daemon: bool = False, start_method: str = "spawn"
    ) -> Any:
        return start_observed(fn, args, nprocs, join, daemon, start_method)

    module.start_processes, module.spawn = start_observed, spawn_observed
    package: Any = torch.multiprocessing
    package.start_processes, package.spawn = start_observed, spawn_observed


_MAIN = "FSDP_MIGRATE_SPAWNED_MAIN"
_FIRST = Path(__file__).with_name("spawned_main.py")


def _prepare_main(settings: Settings) -> None:
    """Have a child run the program's main module behind `spawned_main.py`: Python runs it there before anything else,
    and what it asks or imports must find the CPU in CUDA's place, and the copy of the tree."""
    module: Any = multiprocessing.spawn
    prepared = module.get_preparation_data
    if getattr(prepared, "__wrapped__", None) is not None:
        return

    @functools.wraps(prepared)
    def prepared_observed(name: str) -> dict[str, Any]:
        data: dict[str, Any] = prepared(name)
        main = {key: data.pop(key) for key in ("init_main_from_path", "init_main_from_name") if key in data}
        if main:
            os.environ[_MAIN] = base64.b64encode(pickle.dumps((settings, *main.popitem()))).decode()
            data["init_main_from_path"] = str(_FIRST)
        return data

    module.get_preparation_data = prepared_observed


def spawned_main() -> tuple[Settings, bool, str]:
    """In a child: the settings, and the program's main module: whether it is a path, and the path or its name."""
    settings, key, main = pickle.loads(base64.b64decode(os.environ[_MAIN]))
    return settings, key == "init_main_from_path", main


def prepare_child(settings: Settings) -> None:
    """Before the program is imported; twice is as good as once.

    What a rank starts is spawned as well: the workers of its DataLoader.
    """
    _prepare_main(settings)
    import_from(settings.scratch, settings.trees)
    os.environ.setdefault("LOCAL_WORLD_SIZE", str(settings.processes))
    if settings.redirect:
        from fsdp_migrate.probe.redirect import redirect_cuda_to_cpu

        redirect_cuda_to_cpu(settings.processes)


def _observed_rank(rank: int, settings: Settings, pickled: bytes, *args: Any) -> None:
    die_with_parent()
    prepare_child(settings)
    from fsdp_migrate.probe.session import begin, watched

    recorder = begin(settings, rank, settings.processes)
    function: Callable[..., object] = passed_on(pickle.loads, pickled)
    watched(recorder, lambda: passed_on(function, rank, *args))
