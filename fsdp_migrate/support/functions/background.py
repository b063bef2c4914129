"""Checkpoints that are written while training goes on."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_saver import async_save

_background: dict[str, Any] = {}


def wait_for_checkpoint() -> None:
    """Wait for the last checkpoint, and raise what went wrong with it."""
    if "saving" in _background:
        _background["saving"].result()


def save_in_background(state_dict: dict[str, Any], **kwargs: Any) -> None:
    """`dcp.save` in a group of its own that waits for the copy only."""
    wait_for_checkpoint()
    if "group" not in _background:
        _background["group"] = dist.new_group(backend="gloo") if dist.is_initialized() else None
    _background["saving"] = async_save(state_dict, process_group=_background["group"], **kwargs)
