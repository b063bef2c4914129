"""Runs the programs of `rows`, and what the tool made of them, in one process group; writes what each saw.

usage: torchrun -m tests.checkpoints.run_rows FOLDER PART, with `net` on the path

In FOLDER lie `before/` and `after/`, a folder a row. What a row saves goes to NAME.saved beside that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from tests.support.harness import loaded, run_all

from .files import described
from .rows import ROWS, Row


def keep_on_cpu() -> None:
    """On a CPU, FSDP1 frees what it offloads to the CPU before it can be read: settings go without it."""
    original = FSDP.set_state_dict_type

    def without(module: Any, kind: Any, *configs: Any, **named: Any) -> Any:
        for config in (*configs, *named.values()):
            if config is not None:
                config.offload_to_cpu = False
        return original(module, kind, *configs, **named)

    FSDP.set_state_dict_type = staticmethod(without)
    read = FSDP._optim_state_dict_impl
    FSDP._optim_state_dict_impl = staticmethod(lambda *args, **named: read(*args, **{**named, "cpu_offload": False}))


def program(side: str, row: Row) -> ModuleType:
    return loaded(FOLDER / side / row.module / f"{row.module}.py")


def saved(side: str, row: Row) -> str:
    return str(FOLDER / side / f"{row.module}.saved")


def attempt(row: Row) -> dict[str, Any]:
    """A row that DCP refuses is an error like any other, though torch's exception is none."""
    try:
        return run_row(row)
    except CheckpointException as refused:
        raise RuntimeError(str(refused)) from refused


def run_row(row: Row) -> dict[str, Any]:
    before, after = program("before", row), program("after", row)
    seen: dict[str, Any] = {}
    if dist.get_world_size() == 2:
        seen["saving"] = [side.main(saved(name, row)) for name, side in (("before", before), ("after", after))]
        if dist.get_rank() == 0:
            seen["files"] = [described(saved(name, row)) for name in ("before", "after")]
        dist.barrier()
    seen["reference"] = before.main(saved("before", row), resume=True)
    seen["old file"] = after.main(translated(row, saved("before", row), torch_save_to_dcp), resume=True)
    seen["new file"] = after.main(saved("after", row), resume=True)
    seen["way back"] = before.main(translated(row, saved("after", row), dcp_to_torch_save), resume=True)
    return seen


def translated(row: Row, path: str, convert: Callable[[str, str], None]) -> str:
    """The file of one program as the other reads it."""
    if row.checkpoint_format != "dcp":
        return path
    if dist.get_rank() == 0:
        convert(path, f"{path}.other")
    dist.barrier()
    return f"{path}.other"


FOLDER = Path(sys.argv[1])

if __name__ == "__main__":
    keep_on_cpu()
    torch.compiler.set_stance("force_eager")  # compiling takes long, and saves nothing else
    world = int(os.environ["WORLD_SIZE"])
    run_all({row.name: (world, partial(attempt, row)) for row in ROWS if world > 1 or row.one_rank})
