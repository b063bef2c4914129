"""Runs every program before and after its rewrite, in one process group, and writes what differed.

usage: torchrun -m tests.parity.run_around FOLDER PART; FOLDER holds `NAME/before.py` and `NAME/after.py` for each
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from fsdp_migrate.probe.redirect import redirect_cuda_to_cpu

from ..support import models
from ..support.harness import loaded, run_all
from ..support.observe import STEPS, full_state, units_of


def trained(main: Callable[..., Any], steps: int) -> dict[str, Any]:
    data = torch.Generator().manual_seed(11 + dist.get_rank())
    torch.manual_seed(7)
    model, losses = main([torch.randn(6, 8, generator=data) for _ in range(steps)])
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()  # what an evaluation left whole
    return {"units": units_of(model), "losses": losses, "state": full_state(model)}


def run(folder: Path) -> dict[str, Any]:
    found = {}
    for name in ("before", "after"):
        main = loaded(folder / f"{name}.py").main
        first, last = trained(main, 0)["state"], trained(main, STEPS)
        moved = sorted(plain(n) for n, tensor in last["state"].items() if not torch.equal(tensor, first[n]))
        found[name] = {"units": len(last["units"]), "losses": last["losses"], "moved": moved, "state": last["state"]}
    states = [{plain(n): t for n, t in found[name].pop("state").items()} for name in ("before", "after")]
    assert states[0].keys() == states[1].keys()
    distance = max((tensor.double() - states[1][n].double()).abs().max().item() for n, tensor in states[0].items())
    return {**found, "distance": distance}


def plain(name: str) -> str:
    return name.replace("_checkpoint_wrapped_module.", "")


if __name__ == "__main__":
    sys.modules["models"] = models
    redirect_cuda_to_cpu(2)  # FSDP1 wants an accelerator
    folder = Path(sys.argv[1])
    run_all({each.name: (2, partial(run, each)) for each in sorted(folder.iterdir()) if each.is_dir()})
