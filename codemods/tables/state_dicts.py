"""FSDP1's state-dict types and configs, and the `StateDictOptions` that give the same dictionary.

Measured on torch 2.13 (gloo, 2 ranks): same keys, order, dtypes and values. `cpu_offload=True` together with
`full_state_dict=True` leaves the dictionary on rank 0 only, as `rank0_only=True` did.
"""

from __future__ import annotations

from dataclasses import dataclass

CONTEXT = "FullyShardedDataParallel.state_dict_type"

SETTINGS = frozenset({"FullyShardedDataParallel.get_state_dict_type", "FullyShardedDataParallel.set_state_dict_type"})
"""What sets or reads the type for good, and not for a block."""

DCP = "torch.distributed.checkpoint.state_dict"


@dataclass(frozen=True, slots=True)
class Options:
    """What one combination of `(offload_to_cpu, rank0_only)` of a full state-dict config becomes."""

    cpu_offload: bool
    differs: str = ""
    """What is not the same; empty when everything is."""


FULL = {
    (False, False): Options(cpu_offload=False),
    (True, True): Options(cpu_offload=True),
    (False, True): Options(cpu_offload=True, differs="rank 0 gets the state dict on the CPU, not on its device"),
    (True, False): Options(cpu_offload=False, differs="every rank gets the state dict on its device, not on the CPU"),
}

CONFIGS = {
    "state_dict_config": "FullStateDictConfig",
    "optim_state_dict_config": "FullOptimStateDictConfig",
}

TO_LOAD = "FullyShardedDataParallel.optim_state_dict_to_load"

OPTIMIZER_READS = {
    # Full, on the CPU of rank 0, whatever the context.
    "FullyShardedDataParallel.full_optim_state_dict": "full_state_dict=True, cpu_offload=True",
    # Full on every rank, where no context or setting says otherwise.
    "FullyShardedDataParallel.optim_state_dict": "full_state_dict=True",
    "FullyShardedDataParallel.sharded_optim_state_dict": "",
}
"""FSDP1's functions that read an optimizer's state, called as `(model, optimizer)`, and the arguments of their
`StateDictOptions`."""
