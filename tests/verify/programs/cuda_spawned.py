"""Written for GPUs alone, and starts its own processes: CUDA devices, NCCL, pinned memory, streams, CUDA's scaler."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import CPUOffload, MixedPrecision, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.data import DataLoader

assert torch.cuda.is_available(), "asked again in each process that is spawned"
API = json.loads(Path(__file__).with_name("options.json").read_text())["api"]
WORKERS = int(os.environ.get("WORKERS", "0"))
SEEDED, SYNC = "UNSEEDED" not in os.environ, "UNSYNCED" not in os.environ


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def shard(model: nn.Module, rank: int) -> nn.Module:
    if API == 1:
        offload, mixed = CPUOffload(offload_params=True), MixedPrecision()
        return FSDP(model, cpu_offload=offload, mixed_precision=mixed, device_id=rank, sync_module_states=SYNC)
    fully_shard(model)
    return model


def worker(rank: int, world: int) -> None:
    dist.init_process_group("nccl", rank=rank, world_size=world)
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    assert device.type == "cuda"
    if SEEDED:
        torch.cuda.manual_seed(0)
        torch.manual_seed(rank if "SEEDED_BY_RANK" in os.environ else 0)
    model = shard(Net().to(rank), rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    stream = torch.cuda.Stream()
    generator = torch.Generator().manual_seed(rank)
    total = torch.zeros(1, device=f"cuda:{rank}")
    data = [torch.randn(4, 8, generator=generator) for _ in range(12)]
    batches = DataLoader(data, batch_size=None, num_workers=WORKERS)  # spawned as the rank was, each runs this file
    for batch in batches:
        with torch.cuda.stream(stream):
            x = batch.pin_memory().cuda(non_blocking=True)
        torch.cuda.current_stream().wait_stream(stream)
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total += loss.detach()
    dist.all_reduce(total, op=dist.ReduceOp.AVG)
    torch.cuda.synchronize()
    dist.barrier(device_ids=[rank])
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", os.environ["FREE_PORT"]
    world = torch.cuda.device_count()
    mp.spawn(worker, args=(world,), nprocs=world, join=True)
