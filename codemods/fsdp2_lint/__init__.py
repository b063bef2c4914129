"""What `fully_shard` needs and does not check, for any FSDP2 code: one rule a file."""

from __future__ import annotations

from codemods.api import Check

from . import direct_forward, gather_on_one_rank, naive_save, optimizer_first, root_first, root_only, unset_device

FSDP2_LINT: tuple[Check, ...] = (
    root_only.CHECK,
    optimizer_first.CHECK,
    root_first.CHECK,
    direct_forward.CHECK,
    gather_on_one_rank.CHECK,
    naive_save.CHECK,
    unset_device.CHECK,
)
