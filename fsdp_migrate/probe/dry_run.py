"""One process that pretends to be rank 0 of many: structure and communication at any world size, no values.

torch's "fake" backend answers every collective at once without moving data, so losses and weights are garbage. What
stays true is which groups are made, and what FSDP sends.
"""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

_RANKS_OF_A_NODE = 8


def pretend_world(world: int) -> None:
    """Make `init_process_group` give a world of `world` ranks, on nodes of eight where that comes out even. Call after
    the redirection of CUDA, if there is one."""
    node = _RANKS_OF_A_NODE if world % _RANKS_OF_A_NODE == 0 else world
    os.environ.update(
        RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(node), MASTER_ADDR="localhost"
    )
    os.environ.setdefault("MASTER_PORT", "29500")  # read by programs, never opened
    real_init = _unwrapped(c10d.init_process_group)
    real_new_group = _unwrapped(c10d.new_group)

    def init(*args: Any, **kwargs: Any) -> None:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        real_init("fake", store=FakeStore(), rank=0, world_size=world)

    def new_group(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        return real_new_group(ranks, backend="fake")

    for module in (dist, c10d):
        module.init_process_group = init  # type: ignore[attr-defined]
        module.new_group = new_group  # type: ignore[attr-defined]


def _unwrapped(function: Any) -> Any:
    while hasattr(function, "__wrapped__") and "fsdp_migrate" in function.__module__:
        function = function.__wrapped__
    return function
