"""Programs that begin anew on their way, or late; FSDP1 or FSDP2, and which, by `options.json`."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

OPTIONS = json.loads(Path(__file__).with_name("options.json").read_text())
FSDP1 = OPTIONS["api"] == 1
KIND = OPTIONS["kind"]


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 2))


def shard(model: nn.Sequential) -> nn.Module:
    if FSDP1:
        strategy = ShardingStrategy.HYBRID_SHARD if KIND == "hybrid" else ShardingStrategy.FULL_SHARD
        policy = ModuleWrapPolicy({nn.Linear})
        return FSDP(model, None, strategy, None, policy, device_id=torch.device("cpu"), use_orig_params=True)
    mesh = None
    if KIND == "hybrid":
        mesh = init_device_mesh("cpu", (1, dist.get_world_size()), mesh_dim_names=("replicate", "shard"))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def redrawn() -> nn.Module:
    """Deferred: what the weights are when they are sharded is whatever was in memory."""
    model = layers()
    with torch.no_grad():
        for param in model.parameters():
            param.fill_(dist.get_rank())
    model = shard(model)
    torch.manual_seed(5 + dist.get_rank() + 100 * OPTIONS["api"])
    inner = model.module if FSDP1 else model
    with FSDP.summon_full_params(model, writeback=True) if FSDP1 else torch.no_grad():
        for layer in (inner[0], inner[2]):
            layer.reset_parameters()
    return model


def optimizer_for(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=3e-3)


def again(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Another model and optimizer, with what these two have learned."""
    weights, state = get_state_dict(model, optimizer)
    model = shard(layers())
    optimizer = optimizer_for(model)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    return model, optimizer


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = redrawn() if KIND == "redrawn" else shard(layers())
    optimizer = optimizer_for(model)
    for step in range(60):
        if KIND == "optimizer" and step % 2 == 0:
            optimizer = optimizer_for(model)
        if KIND == "model" and step == 4:
            model, optimizer = again(model, optimizer)
        generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
        x = torch.randn(8, 16, generator=generator)
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
