"""The arguments of FSDP1's constructor, and what becomes of each in FSDP2.

Source: `torch/distributed/fsdp/fully_sharded_data_parallel.py` of torch 2.13 for names and order; the
equivalences were measured on torch 2.13 (CPU, gloo): equal losses and equal shard groups.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Argument:
    """One parameter of `FullyShardedDataParallel.__init__`, in the order of its signature."""

    name: str
    default: str
    """The value that means the same as leaving the argument out."""
    becomes: str
    """What replaces it in FSDP2; empty when FSDP2 has no need of it."""
    dropped_because: str = ""
    """Why nothing replaces it; only for arguments that can go whatever their value is."""


ARGUMENTS = (
    Argument("module", "", "module"),
    Argument("process_group", "None", "mesh"),
    Argument("sharding_strategy", "None", "reshard_after_forward"),
    Argument("cpu_offload", "None", "offload_policy"),
    Argument("auto_wrap_policy", "None", "one `fully_shard` a module"),
    Argument("backward_prefetch", "BACKWARD_PRE", "", "FSDP2 prefetches in the reverse order of the forward"),
    Argument("mixed_precision", "None", "mp_policy"),
    Argument("ignored_modules", "None", "ignored_params"),
    Argument("param_init_fn", "None", "materialization before sharding"),
    Argument("device_id", "None", "the current device"),
    Argument("sync_module_states", "False", "a broadcast before sharding"),
    Argument("forward_prefetch", "False", "", "FSDP2 overlaps the next all-gather by itself"),
    Argument("limit_all_gathers", "True", "", "FSDP2 frees memory by stream waits and needs no rate limiter"),
    Argument("use_orig_params", "False", "", "FSDP2 always keeps the original parameters"),
    Argument("ignored_states", "None", "ignored_params"),
    Argument("device_mesh", "None", "mesh"),
)

POSITIONS = tuple(argument.name for argument in ARGUMENTS)

DROPPED = {argument.name: argument.dropped_because for argument in ARGUMENTS if argument.dropped_because}

FORMER = {"fsdp_auto_wrap_policy": "auto_wrap_policy"}
"""What torch 1.11 called an argument that has had another name since, with the same meaning."""
