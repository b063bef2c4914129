import argparse
import os
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy


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

    def units(self):
        return list(self.blocks)

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


def shard(model, args, device):
    model = FSDP(
        model,
        auto_wrap_policy=partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m in model.units()),
        device_id=device,
        sharding_strategy={
            "full": ShardingStrategy.FULL_SHARD,
            "grad_op": ShardingStrategy.SHARD_GRAD_OP,
        }[args.parallel],
        mixed_precision=MixedPrecision(
            param_dtype={"fp32": torch.float, "bf16": torch.bfloat16}[args.dtype],
            reduce_dtype={"fp32": torch.float, "bf16": torch.bfloat16}[args.reduce_dtype or args.dtype],
        ),
        sync_module_states=True,
        limit_all_gathers=True,
        use_orig_params=True,
    )
    torch.cuda.synchronize()
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--parallel", choices=["full", "grad_op"], default="full")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--reduce-dtype", choices=["fp32", "bf16"], default=None)
    args = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(dist.get_rank())
    train(shard(Net(), args, int(os.environ["LOCAL_RANK"])))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
