"""The device and the mesh that FSDP1's arguments stand for."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import ShardingStrategy


def resolve_device(module: nn.Module, device_id: int | torch.device | None = None) -> torch.device:
    """The device FSDP1 would compute on, made the current one: `fully_shard` moves parameters to the current device."""
    placed = [p.device for p in module.parameters() if p.device.type not in ("cpu", "meta")]
    device: torch.device | None = placed[0] if placed else None
    if device_id is not None:
        device = torch.device(device_id)
    elif device is None and torch.accelerator.is_available():
        device = torch.accelerator.current_accelerator()
    if device is None or device.type == "cpu":
        return torch.device("cpu")
    handle = torch.get_device_module(device)
    if device == torch.device(device.type):  # without an index, the current one is meant
        return torch.device(device.type, handle.current_device())
    handle.set_device(device)
    return device


def node_mesh(device_type: str = "cuda") -> DeviceMesh:
    """The mesh that the hybrid strategies made by themselves: shards inside a node, replicas across nodes."""
    # FSDP1 counted the devices that this process can see, not the processes of the node.
    per_node = torch.get_device_module(device_type).device_count()
    shape = (dist.get_world_size() // per_node, per_node)
    return init_device_mesh(device_type, shape, mesh_dim_names=("replicate", "shard"))


def hsdp_mesh_from_groups(
    shard_group: dist.ProcessGroup, replicate_group: dist.ProcessGroup, device_type: str
) -> DeviceMesh:
    """The mesh of FSDP1's `process_group=(shard_group, replicate_group)`; a mesh has them the other way round."""
    rows: list[list[int] | None] = [None] * replicate_group.size()
    dist.all_gather_object(rows, dist.get_process_group_ranks(shard_group), group=replicate_group)
    return DeviceMesh.from_group(
        [replicate_group, shard_group],
        device_type,
        mesh=torch.tensor(rows),
        mesh_dim_names=("replicate", "shard"),
    )


def hybrid_mesh(
    device_type: str,
    process_group: dist.ProcessGroup | tuple[dist.ProcessGroup, dist.ProcessGroup] | None = None,
    device_mesh: DeviceMesh | None = None,
) -> DeviceMesh:
    """The mesh of HYBRID_SHARD: shard inside a node and replicate across nodes, unless told otherwise."""
    names = ("replicate", "shard")
    if device_mesh is not None:
        if device_mesh.ndim != 2:
            raise ValueError(f"hybrid sharding needs a mesh of (replicate, shard), got {device_mesh}")
        if device_mesh.mesh_dim_names is not None:
            return device_mesh
        groups = [device_mesh.get_group(0), device_mesh.get_group(1)]
        return DeviceMesh.from_group(groups, device_mesh.device_type, mesh=device_mesh.mesh, mesh_dim_names=names)
    if process_group is not None:
        if not isinstance(process_group, tuple):
            raise TypeError("hybrid sharding needs process_group=(shard_group, replicate_group), or a device_mesh")
        return hsdp_mesh_from_groups(*process_group, device_type)
    return node_mesh(device_type)


def replicate_mesh(device_type: str = "cuda", group: dist.ProcessGroup | None = None) -> DeviceMesh:
    """The mesh of NO_SHARD: gradients are all-reduced, and each shard is the whole parameter."""
    names = ("replicate", "shard")
    if group is None:
        return init_device_mesh(device_type, (dist.get_world_size(), 1), mesh_dim_names=names)
    alone = dist.new_group([dist.get_rank()], use_local_synchronization=True)
    ranks = torch.tensor(dist.get_process_group_ranks(group)).unsqueeze(1)
    return DeviceMesh.from_group([group, alone], device_type, mesh=ranks, mesh_dim_names=names)


def first_dimension(mesh: DeviceMesh | None) -> DeviceMesh | None:
    """What FSDP1 sharded over without a hybrid strategy; `fully_shard` reads two dimensions as (replicate, shard)."""
    if mesh is None or mesh.ndim == 1 or mesh.mesh_dim_names is None:
        return mesh
    return mesh[mesh.mesh_dim_names[0]]


def strategy_kwargs(strategy: str, device_type: str = "cuda") -> dict[str, Any]:
    """What `fully_shard` takes for an FSDP1 strategy of this name."""
    kwargs: dict[str, Any] = {}
    if strategy in ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2"):
        kwargs["reshard_after_forward"] = False
    if strategy in ("NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
        devices = torch.get_device_module(device_type).device_count()
        shards = 1 if strategy == "NO_SHARD" else devices  # whole parameters, or shards inside a node
        shape = (dist.get_world_size() // shards, shards)
        kwargs["mesh"] = init_device_mesh(device_type, shape, mesh_dim_names=("replicate", "shard"))
    elif strategy not in ("FULL_SHARD", "SHARD_GRAD_OP"):
        raise ValueError(f"no sharding strategy: {strategy}")
    return kwargs


def strategy_mesh(strategy: str | None, mesh: DeviceMesh | None = None, device_type: str = "cuda") -> DeviceMesh | None:
    """What FSDP1 sharded over with a strategy of this name; None stands for all ranks."""
    if mesh is not None and strategy not in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
        if strategy == "NO_SHARD":
            return replicate_mesh(mesh.device_type, mesh.get_group(0))
        return mesh if mesh.ndim == 1 or mesh.mesh_dim_names is None else mesh[mesh.mesh_dim_names[0]]
    if mesh is not None and mesh.ndim != 2:
        raise ValueError(f"hybrid sharding needs a mesh of (replicate, shard), got {mesh}")
    if mesh is not None or strategy not in ("NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
        return mesh
    # Whole parameters, or shards inside a node.
    shards = 1 if strategy == "NO_SHARD" else torch.get_device_module(device_type).device_count()
    shape = (dist.get_world_size() // shards, shards)
    return init_device_mesh(device_type, shape, mesh_dim_names=("replicate", "shard"))


def sharding_mesh(strategy: str | None, mesh: DeviceMesh | None, device_type: str = "cuda") -> DeviceMesh | None:
    """What FSDP1 sharded over with a strategy of this name, which is not NO_SHARD; None stands for all ranks."""
    if strategy not in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
        return mesh if mesh is None or mesh.ndim == 1 or mesh.mesh_dim_names is None else mesh[mesh.mesh_dim_names[0]]
    if mesh is None:
        shards = torch.get_device_module(device_type).device_count()  # shards inside a node
        shape = (dist.get_world_size() // shards, shards)
        return init_device_mesh(device_type, shape, mesh_dim_names=("replicate", "shard"))
    if mesh.ndim != 2:
        raise ValueError(f"hybrid sharding needs a mesh of (replicate, shard), got {mesh}")
    return mesh


def group_mesh(
    group: dist.ProcessGroup | tuple[dist.ProcessGroup, dist.ProcessGroup] | None, device_type: str
) -> DeviceMesh | None:
    """The mesh of FSDP1's `process_group`: of one group, or of (shard_group, replicate_group)."""
    if isinstance(group, tuple):
        return hsdp_mesh_from_groups(*group, device_type)
    return None if group is None else DeviceMesh.from_group(group, device_type)


def mesh_over_group(strategy: str | None, group: dist.ProcessGroup, device_type: str) -> DeviceMesh:
    """The mesh of one group: with NO_SHARD its ranks hold replicas, else shards."""
    if strategy != "NO_SHARD":
        return DeviceMesh.from_group(group, device_type)
    alone = dist.new_group([dist.get_rank()], use_local_synchronization=True)  # a shard is the whole parameter
    ranks = torch.tensor(dist.get_process_group_ranks(group)).unsqueeze(1)
    return DeviceMesh.from_group([group, alone], device_type, mesh=ranks, mesh_dim_names=("replicate", "shard"))


def kwargs_over_group(strategy: str, group: dist.ProcessGroup, device_type: str = "cuda") -> dict[str, Any]:
    """What a strategy of this name is over one group: with NO_SHARD its ranks hold replicas, else shards."""
    mesh: Any = DeviceMesh.from_group(group, device_type)
    if strategy == "NO_SHARD":
        alone = dist.new_group([dist.get_rank()], use_local_synchronization=True)  # a shard is the whole parameter
        ranks, names = mesh.mesh.unsqueeze(1), ("replicate", "shard")
        return {"mesh": DeviceMesh.from_group([group, alone], device_type, mesh=ranks, mesh_dim_names=names)}
    return {"FULL_SHARD": {"mesh": mesh}, "SHARD_GRAD_OP": {"mesh": mesh, "reshard_after_forward": False}}[strategy]


def mesh_of_group(strategy: str | None, group: dist.ProcessGroup | None, device_type: str) -> DeviceMesh | None:
    """What FSDP1 sharded over with a strategy of this name, where it may be given a group."""
    if group is None:
        return strategy_mesh(strategy, None, device_type)
    if strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
        raise ValueError("hybrid sharding needs process_group=(shard_group, replicate_group), or a device_mesh")
    return mesh_over_group(strategy, group, device_type)


def resolve_mesh(
    device_type: str,
    sharding_strategy: ShardingStrategy | None = None,
    process_group: dist.ProcessGroup | tuple[dist.ProcessGroup, dist.ProcessGroup] | None = None,
    device_mesh: DeviceMesh | None = None,
) -> DeviceMesh:
    """The mesh with exactly the groups that FSDP1 used.

    The shape says more to FSDP2 than it did to FSDP1: any two-dimensional mesh shards over its second dimension, where
    FSDP1 without a hybrid strategy used the first dimension and nothing else.
    """
    if process_group is not None and device_mesh is not None:
        raise ValueError("pass process_group or device_mesh, not both")
    strategy = sharding_strategy.name if sharding_strategy is not None else ""
    if strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
        return hybrid_mesh(device_type, process_group, device_mesh)
    if isinstance(process_group, tuple):
        raise TypeError(f"process_group=(shard_group, replicate_group) needs a hybrid strategy, not {strategy}")
    if strategy == "NO_SHARD":
        if device_mesh is None:
            return replicate_mesh(device_type, process_group)
        if device_mesh.mesh_dim_names is not None and tuple(device_mesh.shape[1:]) == (1,):
            return device_mesh
        return replicate_mesh(device_mesh.device_type, device_mesh.get_group(0))
    if process_group is not None:
        return DeviceMesh.from_group(process_group, device_type)
    if device_mesh is None:
        return init_device_mesh(device_type, (dist.get_world_size(),))
    if device_mesh.ndim == 1:
        return device_mesh
    if device_mesh.mesh_dim_names is not None:
        return device_mesh[device_mesh.mesh_dim_names[0]]
    return DeviceMesh.from_group(device_mesh.get_group(0), device_mesh.device_type)
