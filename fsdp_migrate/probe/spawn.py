"""Programs that start their own ranks with `torch.multiprocessing.spawn`: the probe goes along into each child."""

from __future__ import annotations

import functools
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
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


def _observed_rank(rank: int, settings: Settings, pickled: bytes, *args: Any) -> None:
    die_with_parent()
    import_from(settings.scratch, settings.trees)
    os.environ.setdefault("LOCAL_WORLD_SIZE", str(settings.processes))
    if settings.redirect:
        from fsdp_migrate.probe.redirect import redirect_cuda_to_cpu

        redirect_cuda_to_cpu(settings.processes)
    from fsdp_migrate.probe.session import begin, watched

    recorder = begin(settings, rank, settings.processes)
    function: Callable[..., object] = passed_on(pickle.loads, pickled)
    watched(recorder, lambda: passed_on(function, rank, *args))
