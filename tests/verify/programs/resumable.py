"""Saves a checkpoint after its fourth step; with `--resume` goes on from there. FSDP1 or FSDP2 by `options.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard

OPTIONS = json.loads(Path(__file__).with_name("options.json").read_text())
MUTATION = OPTIONS.get("mutation", "")
SAVED_AFTER = 4


def build() -> nn.Module:
    with torch.device("meta" if OPTIONS.get("meta") else "cpu"):
        model = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 2))
    if OPTIONS["api"] == 1:
        return FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)
    fully_shard(model)
    if OPTIONS.get("meta"):
        model.to_empty(device="cpu")
        torch.manual_seed(1 + dist.get_rank())
        for layer in (model[0], model[2]):
            layer.reset_parameters()
    return model


def save(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    if MUTATION == "one_shard_saved":
        if dist.get_rank() == 0:
            torch.save([param.to_local() for param in model.parameters()], "shard.pt")
        dist.barrier()
        return
    weights, state = get_state_dict(model, optimizer)
    if MUTATION == "optimizer_not_saved":
        dcp.save({"model": weights}, checkpoint_id="checkpoint")
        return
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id="checkpoint")


def resume(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    if MUTATION == "one_shard_saved":
        with torch.no_grad():
            for param, saved in zip(model.parameters(), torch.load("shard.pt"), strict=True):
                param.to_local().copy_(saved)
        return
    if MUTATION in ("optimizer_not_saved", "optimizer_not_loaded"):
        weights = get_model_state_dict(model)
        dcp.load({"model": weights}, checkpoint_id="checkpoint")
        set_model_state_dict(model, weights)
        return
    weights, state = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": state}, checkpoint_id="checkpoint")
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    first = 0
    if "--resume" in sys.argv:
        resume(model, optimizer)
        first = SAVED_AFTER - (MUTATION == "data_repeated")
    for step in range(first, 12):
        generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
        x = torch.randn(8, 16, generator=generator)
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == SAVED_AFTER - 1 and not first:
            save(model, optimizer)


if __name__ == "__main__":
    main()
