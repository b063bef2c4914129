"""What `fully_shard` needs and does not check, for any FSDP2 code: one rule a file."""

from __future__ import annotations

from codemods.api import Check

from . import (
    compiled_root,
    dataclass_outputs,
    direct_forward,
    early_scales,
    gather_on_one_rank,
    late_float8,
    naive_save,
    optimizer_first,
    root_first,
    root_only,
    unawaited_save,
    unset_device,
)

FSDP2_LINT: tuple[Check, ...] = (
    root_only.CHECK,
    optimizer_first.CHECK,
    root_first.CHECK,
    direct_forward.CHECK,
    gather_on_one_rank.CHECK,
    naive_save.CHECK,
    unset_device.CHECK,
    late_float8.CHECK,
    early_scales.CHECK,
    compiled_root.CHECK,
    unawaited_save.CHECK,
    dataclass_outputs.CHECK,
)
