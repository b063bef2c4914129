"""Runs every program before and after its rewrite, in one process group, and writes what differed.

usage: torchrun -m tests.parity.run_rows FOLDER PART; FOLDER holds `ROW/before.py` and `ROW/after.py` for each row
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed.fsdp._init_utils as fsdp1_init

from fsdp_migrate.probe.redirect import redirect_cuda_to_cpu

from ..support import models
from ..support.harness import loaded, run_all
from ..support.observe import compare, count_collectives
from .rows import ROWS, Row

OPTIMIZERS = {
    "sgd": partial(torch.optim.SGD, lr=0.05, momentum=0.9),
    "adamw": partial(torch.optim.AdamW, lr=0.1, weight_decay=0.5),
}


def run(row: Row, folder: Path) -> dict[str, Any]:
    builds = [loaded(folder / row.folder / name).build for name in ("before.py", "after.py")]
    dtype = torch.bfloat16 if row.bf16_input else torch.float32
    return compare(*builds, OPTIMIZERS[row.optimizer], row.seed_by_rank, dtype)


if __name__ == "__main__":
    sys.modules["models"] = models
    # FSDP1 refuses to broadcast CPU tensors; with gloo it can.
    fsdp1_init._check_module_states_for_sync_module_states = lambda module_states: None
    redirect_cuda_to_cpu(2)
    # Of a node; FSDP1 and the rewritten program ask the CPU and CUDA.
    torch.cuda.device_count = torch.cpu.device_count = lambda: 2
    count_collectives()
    folder = Path(sys.argv[1])
    run_all({row.name: (row.world, partial(run, row, folder)) for row in ROWS})
