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
    model_state_dict: Mapping[str, Any],
    optimizer_key: str | None,
    storage_reader: StorageReader,
    planner: LoadPlanner | None = None,
) -> dict[str, Any]:
    """What was saved (under a key), sharded as the parameters are.

    As torch's `load_sharded_optimizer_state_dict`, for any placements. Every rank has to call this.
    """
    metadata = storage_reader.read_metadata()
    state: dict[str, Any] = {}
    for key, saved in metadata.state_dict_metadata.items():
        path = metadata.planner_data[key]
        if optimizer_key not in (None, path[0]):
            continue
        state[key] = None
        if isinstance(saved, TensorStorageMetadata):
            names = [name for name in path if name in model_state_dict]
            like: Any = model_state_dict[names[0]] if names else None
            same = getattr(like, "shape", None) == saved.size
            empty = torch.empty_like(like) if same else torch.empty(saved.size)
            state[key] = empty.to(saved.properties.dtype)
    load(state, storage_reader=storage_reader, planner=planner)
    return unflatten_state_dict(state, metadata.planner_data)


def load_dcp(path: str | PathLike[str], model: nn.Module) -> dict[str, Any]:
    """Read a checkpoint of `torch.distributed.checkpoint`. Collective."""
    return read_sharded(model.state_dict(), None, FileSystemReader(path))
