"""What one rank does with many cases in one process group."""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import torch.distributed as dist


def run_all(cases: Mapping[str, tuple[int, Callable[[], Any]]]) -> None:
    """Run the cases made for this number of ranks, and write what they returned or how they failed.

    `sys.argv` holds the folder to write to, and the part to run, `0/3`: every third case, from the first one on.
    """
    folder, of_all = sys.argv[1:]
    part, parts = map(int, of_all.split("/"))
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    results: dict[str, Any] = {}
    of_world = [(name, run) for name, (world, run) in cases.items() if world == dist.get_world_size()]
    for name, run in of_world[part::parts]:
        if dist.get_rank() == 0:
            print(name, flush=True)  # the last one is the one that ended a process
        try:
            results[name] = run()
        except Exception:
            results[name] = {"error": traceback.format_exc()}
        if not agreed("error" in (results[name] or {})):
            break
    path = Path(folder) / f"rank{dist.get_rank()}of{dist.get_world_size()}part{part}.json"
    path.write_text(json.dumps(results))
    dist.destroy_process_group()


def agreed(failed: bool) -> bool:
    """Whether the ranks still agree on which collective comes next: a case failed on all of them or on none."""
    everywhere: list[Any] = [None] * dist.get_world_size()
    try:
        dist.all_gather_object(everywhere, failed)
    except RuntimeError:
        return False
    return len(set(everywhere)) == 1


def loaded(path: Path) -> ModuleType:
    """A program as it is when run from its own folder."""
    sys.modules.pop("fsdp2_support", None)
    sys.path.insert(0, str(path.parent))
    try:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.pop(0)
