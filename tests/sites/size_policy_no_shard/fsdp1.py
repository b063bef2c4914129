import argparse
import os
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Net(nn.Module):
    def __init__(self, dim=16, depth=2):
        super().__init__()
        self.inp = nn.Linear(8, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.out = nn.Linear(dim, 8)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def train(model, steps=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        x = torch.randn(4, 8, device="cuda")
        loss = (model(x).float() - x).square().mean()
        loss.backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(step, loss.item())


def shard(module, zero, min_num_params):
    return FSDP(
        module,
        auto_wrap_policy=partial(size_based_auto_wrap_policy, min_num_params=min_num_params),
        sharding_strategy={
            "3": ShardingStrategy.FULL_SHARD,
            "2": ShardingStrategy.SHARD_GRAD_OP,
            "0": ShardingStrategy.NO_SHARD,
        }[zero],
        device_id=torch.cuda.current_device(),
        use_orig_params=True,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--zero", choices=["3", "2", "0"], default="3")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    train(shard(Net(), args.zero, min_num_params=1000))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
