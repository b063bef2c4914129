"""Uses of FSDP1 beside the constructor, on a model of FSDP1 and on one that is none."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy, StateDictType

dist.init_process_group("gloo")
model = FSDP(nn.Linear(4, 4), device_id=torch.device("cpu"), use_orig_params=True)
FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)
FSDP.set_state_dict_type(nn.Linear(2, 2), StateDictType.FULL_STATE_DICT)
model.sharding_strategy = ShardingStrategy.FULL_SHARD
model.note = "mine"
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(torch.ones(1, 4)).sum().backward()
model.clip_grad_norm_(1.0)
optimizer.step()
