"""Saves a full checkpoint after its second step; FSDP1, or FSDP2 with the mistake that `options.json` names."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FullStateDictConfig, StateDictType, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

OPTIONS = json.loads(Path(__file__).with_name("options.json").read_text())
dist.init_process_group("gloo")
torch.manual_seed(0)
model: nn.Module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
if OPTIONS["api"] == 1:
    model = FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)
else:
    fully_shard(model)
if OPTIONS["api"] == 1 or OPTIONS["mutation"] == "leftover":
    FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(4):
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + dist.get_rank()))
    model(x).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 1:
        full = StateDictOptions(full_state_dict=True, cpu_offload=True)
        plain = OPTIONS["api"] == 1 or OPTIONS["mutation"] == "leftover"
        state = model.state_dict() if plain else get_model_state_dict(model, options=full)
        if dist.get_rank() == 0 or OPTIONS["mutation"] == "all_ranks":
            torch.save({"model": state, "step": step}, "model.pt")
