"""FSDP1's state-dict functions, and where each of their arguments goes.

Measured on torch 2.13 (gloo, 2 ranks): same keys, order, dtypes and values. `cpu_offload=True` together with
`full_state_dict=True` leaves the dictionary on rank 0 only, as `rank0_only=True` did.
"""

from __future__ import annotations

from dataclasses import dataclass

CONTEXT = "FullyShardedDataParallel.state_dict_type"

SET = "FullyShardedDataParallel.set_state_dict_type"

SETTINGS = frozenset({"FullyShardedDataParallel.get_state_dict_type", SET})
"""What sets or reads the type for good, and not for a block."""

DCP = "torch.distributed.checkpoint.state_dict"

DCP_READERS = frozenset(
    f"torch.distributed.{package}.load_sharded_optimizer_state_dict"
    for package in ("checkpoint", "checkpoint.optimizer", "_shard.checkpoint", "_shard.checkpoint.optimizer")
)
"""Torch's functions that read an optimizer's sharded state."""

FULL = "full_state_dict=True"
"""The option of a full state dict; to load with where each rank has it, and the first of all ranks another model's."""

FULL_LOAD = f"{FULL}, broadcast_from_rank0=True"
"""The options to load a full state dict with: only broadcasting finds out about missing keys."""

READ_ALONE = "one rank alone reads there, and waits for the others, as under FSDP1"
READ_HINT = "read it on every rank, and let one of them save it"
LOADED_ALONE = "one rank alone loads there, and waits for the others, as under FSDP1"
LOADED_HINT = "load it on every rank: the first one's is sent to the others"

CONFIGS = {
    "FULL_STATE_DICT": ("FullStateDictConfig", "FullOptimStateDictConfig"),
    "SHARDED_STATE_DICT": ("ShardedStateDictConfig", "ShardedOptimStateDictConfig"),
}
"""The configs of each kind of state dict: the model's and the optimizer's."""

CONFIG_FIELDS = {
    "FullStateDictConfig": {"offload_to_cpu": "False", "rank0_only": "False"},
    "FullOptimStateDictConfig": {"offload_to_cpu": "True", "rank0_only": "False"},
    "ShardedStateDictConfig": {"offload_to_cpu": "False", "_use_dtensor": "False"},
    "ShardedOptimStateDictConfig": {"offload_to_cpu": "True", "_use_dtensor": "False"},
    "LocalStateDictConfig": {"offload_to_cpu": "False"},
    "LocalOptimStateDictConfig": {"offload_to_cpu": "False"},
}
"""The fields of the configs in their order, and their defaults."""


@dataclass(frozen=True, slots=True)
class OptimizerCall:
    """A static method of FSDP1 that deals in an optimizer's state."""

    parameters: tuple[str, ...]
    """FSDP1's, in their order."""
    dropped: tuple[str, ...] = ()
    """Those that what comes in its place does not have."""


OPTIMIZER_CALLS = {
    "full_optim_state_dict": OptimizerCall(
        ("model", "optim", "optim_input", "rank0_only", "group"), ("optim_input", "group")
    ),
    "sharded_optim_state_dict": OptimizerCall(("model", "optim", "group"), ("group",)),
    "optim_state_dict": OptimizerCall(("model", "optim", "optim_state_dict", "group"), ("optim_state_dict", "group")),
    "optim_state_dict_to_load": OptimizerCall(
        ("model", "optim", "optim_state_dict", "is_named_optimizer", "load_directly", "group"),
        ("is_named_optimizer", "group"),
    ),
    "shard_full_optim_state_dict": OptimizerCall(
        ("full_optim_state_dict", "model", "optim_input", "optim"), ("optim_input",)
    ),
    "scatter_full_optim_state_dict": OptimizerCall(
        ("full_optim_state_dict", "model", "optim_input", "optim", "group"), ("optim_input", "group")
    ),
    "flatten_sharded_optim_state_dict": OptimizerCall(("sharded_optim_state_dict", "model", "optim")),
    "rekey_optim_state_dict": OptimizerCall(
        ("optim_state_dict", "optim_state_key_type", "model", "optim_input", "optim"), ("optim_input",)
    ),
}
