"""A program that saves by rank, in LOCAL_STATE_DICT, and goes on from that: FSDP1's files, read after a rewrite."""

from __future__ import annotations

PROGRAM = """\
import torch
import torch.distributed as dist
from net import Block, Net, train
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def save(model, optimizer, path):
    with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
        torch.save({{"model": model.state_dict(), "optimizer": optimizer.state_dict()}}, path)


def load(model, optimizer, path):
    saved = torch.load(path, weights_only=False)
    with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])


def main(path, resume):
    path = f"{{path}}.{{dist.get_rank()}}.pt"
    torch.manual_seed(3)
    model = FSDP(
        Net(),
        auto_wrap_policy=ModuleWrapPolicy({{Block}}),
        device_id=torch.device("cpu"),
        use_orig_params={use_orig_params},
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
    if resume:
        load(model, optimizer, path)
        return train(model, optimizer, 3, 3)
    train(model, optimizer, 0, 3)
    save(model, optimizer, path)
    return train(model, optimizer, 3, 3)
"""
PROGRAMS = {name: PROGRAM.format(use_orig_params=name) for name in ("True", "False")}
