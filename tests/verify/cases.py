"""The right and the wrong migrations that the checks are held against.

The thresholds in fsdp_migrate/verify/thresholds.py were frozen with the cases of `CALIBRATION` and `RIGHT`; `HOLD_OUT`
and `RIGHT_HOLD_OUT` were written after that and changed nothing.
"""

from __future__ import annotations

from typing import Any

from tests.verify.runs import Case

ACCUMULATE: dict[str, Any] = {"accumulate": 2}
SYNC: dict[str, Any] = {"sync_module_states": True}
BF16: dict[str, Any] = {"precision": "bf16"}
META: dict[str, Any] = {"meta": True}

RIGHT = [
    Case("fp32"),
    Case("accumulation", ACCUMULATE),
    Case("sync_module_states", SYNC),
    Case("bf16", BF16),
    Case("bf16 with accumulation", {**BF16, **ACCUMULATE}),
    Case("bf16, fp32 reduction", {**BF16, "reduce": "fp32"}),
    Case("one flat parameter a unit", {"use_orig_params": False}),
    Case("dropout and activation checkpointing", {"dropout": 0.1, "checkpointing": True}),
    Case("SHARD_GRAD_OP", {"strategy": "SHARD_GRAD_OP"}),
    Case("NO_SHARD", {"strategy": "NO_SHARD"}),
    Case("meta initialisation", META),
]

CALIBRATION = [
    Case("only the root sharded", {}, "root_only", ("S1", "S3")),
    Case("optimizer before fully_shard", {}, "optimizer_first", ("H0",)),
    Case("sync_module_states dropped", SYNC, "sync_dropped", ("N0", "N1", "N3")),
    Case("no_sync inverted", ACCUMULATE, "no_sync_inverted", ("N2", "N3", "N4")),
    Case("no_sync on every micro-batch", ACCUMULATE, "no_sync_always", ("S3", "N2")),
    Case("no_sync dropped", ACCUMULATE, "no_sync_dropped", ("S3",)),
    Case("clipping by the local norm", {"clip": 0.1}, "clip_local", ("N2", "N3")),
    Case("clipping by the local norm, bf16", {**BF16, "clip": 0.1}, "clip_local", ("N2",)),
    Case("clipping dropped", {"clip": 0.1}, "clip_dropped", ("N2", "N3")),
    Case("mixed precision dropped", BF16, "precision_dropped", ("S2", "S3")),
    Case("another reduce dtype", BF16, "reduce_dtype", ("S2", "S3")),
    Case("loss scaling lost", ACCUMULATE, "scaling_lost", ("N1", "N2")),
    Case("loss scaling lost, bf16", {**ACCUMULATE, **BF16}, "scaling_lost", ("N1", "N2")),
    Case("gradients summed", {"clip": 0.0}, "gradients_summed", ("N2", "N3")),
    Case("reshard_after_forward=False", {}, "reshard_dropped", ("S3",)),
    Case("learning rate 1% off", {}, "lr_off", ("H0",)),
    Case("learning rate 1% off, bf16", BF16, "lr_off", ("H0",)),
    Case("zero_grad lost", {}, "zero_grad_lost", ("N4",)),
]

RIGHT_HOLD_OUT: list[Case] = []
HOLD_OUT: list[Case] = []
