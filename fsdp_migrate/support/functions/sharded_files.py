"""Sharded checkpoints, read as they were saved."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint._nested_dict import unflatten_state_dict
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.storage import StorageReader


def read_sharded(
    reader: StorageReader, params: Mapping[str, Any], first: str | None = None, planner: LoadPlanner | None = None
) -> dict[str, Any]:
    """What a checkpoint holds, or the part of it under its `first` key: sharded where a parameter of this name is."""
    metadata = reader.read_metadata()
    state: dict[str, Any] = {}
    for key, saved in metadata.state_dict_metadata.items():
        path = metadata.planner_data[key]
        if first is not None and path[0] != first:
            continue
        if not isinstance(saved, TensorStorageMetadata):
            state[key] = None
            continue
        param = next((params[name] for name in path if name in params), None)
        if isinstance(param, torch.Tensor) and param.shape == saved.size:
            state[key] = torch.empty_like(param, dtype=saved.properties.dtype)
        else:
            state[key] = torch.empty(saved.size, dtype=saved.properties.dtype)
    load(state, storage_reader=reader, planner=planner)
    return unflatten_state_dict(state, metadata.planner_data)


def load_sharded_optim_state_dict(
    model_state_dict: Mapping[str, Any],
    optimizer_key: str,
    storage_reader: StorageReader,
    planner: LoadPlanner | None = None,
) -> dict[str, Any]:
    """Torch's `load_sharded_optimizer_state_dict`, with each tensor sharded as its parameter is."""
    return read_sharded(storage_reader, model_state_dict, optimizer_key, planner)


def load_dcp(path: str | PathLike[str], model: nn.Module) -> dict[str, Any]:
    """Read a checkpoint of `torch.distributed.checkpoint` as it was saved. Every rank has to call this."""
    return read_sharded(FileSystemReader(path), model.state_dict())
