"""Runs the programs of `rows`, and what the tool made of them, in one process group; writes what each saw.

usage: torchrun -m tests.checkpoints.run_rows FOLDER [ROW...], with `net` on the path

In FOLDER lie `before/` and `after/`, a folder a row. What a row saves goes to NAME.saved beside that.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from tests.support.harness import run_all

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


def program(side: str, row: Row) -> Any:
    path = FOLDER / side / row.module / f"{row.module}.py"
    sys.path.insert(0, str(path.parent))
    sys.modules.pop("fsdp2_support", None)
    try:
        spec = importlib.util.spec_from_file_location(f"{side}_{row.module}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.pop(0)


def saved(side: str, row: Row) -> str:
    return str(FOLDER / side / f"{row.module}.saved")


def run_row(row: Row) -> dict[str, Any]:
    before, after = program("before", row), program("after", row)
    seen: dict[str, Any] = {}
    if dist.get_world_size() == 2:
        seen["saving"] = [side.main(saved(name, row)) for name, side in (("before", before), ("after", after))]
        if dist.get_rank() == 0:
            seen["files"] = [described(saved(name, row)) for name in ("before", "after")]
        dist.barrier()
    seen["reference"] = before.main(saved("before", row), resume=True)
    seen["old file"] = after.main(converted(row), resume=True)
    seen["new file"] = after.main(saved("after", row), resume=True)
    return seen


def converted(row: Row) -> str:
    """The old file as the new program reads it."""
    old = saved("before", row)
    if row.checkpoint_format != "dcp":
        return old
    if dist.get_rank() == 0:
        torch_save_to_dcp(old, f"{old}.dcp")
    dist.barrier()
    return f"{old}.dcp"


def described(path: str) -> list[Any]:
    """Keys, dtypes, shapes and values of what a file holds, in its order; a DCP checkpoint has none."""
    if not Path(path).is_dir():
        return list(leaves("", torch.load(path)))
    dcp_to_torch_save(path, f"{path}.pt")
    return sorted(leaves("", torch.load(f"{path}.pt")), key=str)


def leaves(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(f"{key}/{name!r}", item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(f"{key}/{index}", item)
    elif isinstance(value, torch.Tensor):
        yield [key, f"{type(value).__name__} {value.dtype} {list(value.shape)}", value.double().flatten().tolist()]
    else:
        yield [key, type(value).__name__, value]


FOLDER = Path(sys.argv[1])

if __name__ == "__main__":
    keep_on_cpu()
    run_all({row.name: (int(os.environ["WORLD_SIZE"]), partial(run_row, row)) for row in ROWS})
