"""What FSDP2 can do since which torch; whatever is not here exists since 2.6, the oldest that is emitted for.

Source: the released packages from 2.5 to 2.14.
"""

from __future__ import annotations

OLDEST = (2, 6)

LOOKS_INTO_DATACLASSES = (2, 12)
"""Since when `fully_shard` finds the tensors of a dataclass that a module returns; before, pytree has to know it."""

SINCE = {
    # torch.distributed.fsdp exports them; before that the import was torch.distributed._composable.fsdp
    "CPUOffloadPolicy": (2, 6),
    "FSDPModule": (2, 6),
    "MixedPrecisionPolicy": (2, 6),
    "OffloadPolicy": (2, 6),
    "UnshardHandle": (2, 6),
    "fully_shard": (2, 6),
    "register_fsdp_forward_method": (2, 6),
    "set_unshard_in_backward": (2, 6),
    "shard_placement_fn": (2, 6),
    "ignored_params": (2, 7),
    "set_all_reduce_hook": (2, 7),
    "set_allocate_memory_from_process_group_for_comm": (2, 8),
    "set_force_sum_reduction_for_comms": (2, 8),
    "set_gradient_divide_factor": (2, 8),
    "set_reshard_after_forward": (2, 8),
    "set_custom_all_gather": (2, 9),
    "set_custom_reduce_scatter": (2, 9),
    "share_comm_ctx": (2, 10),
    "DataParallelMeshDims": (2, 12),
    "ShardPlacementResult": (2, 12),
    "dp_mesh_dims": (2, 12),
    "set_symm_mem_for_comm": (2, 12),
    "reset_iter_state": (2, 13),
    "set_reduce_scatter_unused_params": (2, 13),
    "set_separate_reduce_scatter_group": (2, 13),
}
"""Functions, classes, methods of `FSDPModule` and arguments of `fully_shard`, by name.

`reshard_after_forward=None`, and True on the root, mean what they say since 2.8 only: neither is ever written.
"""


def exists(name: str, torch_version: tuple[int, int]) -> bool:
    """Whether a torch of this version has it."""
    return torch_version >= SINCE[name]
