import argparse
import os
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


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
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(step, loss.item())


def shard(model, auto_wrap=False, mp="fp32", strategy="FULL_SHARD"):
    if auto_wrap:
        policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    else:
        policy = None

    if mp == "bf16":
        precision = MixedPrecision(
            param_dtype=torch.bfloat16,
            # Gradients are reduced in full precision.
            reduce_dtype=torch.float32,
        )
    elif mp == "fp32":
        precision = MixedPrecision(param_dtype=torch.float32, reduce_dtype=torch.float32)
    else:
        raise ValueError(f"unknown precision {mp}")

    if strategy == "SHARD_GRAD":
        sharding_strategy = ShardingStrategy.SHARD_GRAD_OP
    elif strategy == "FULL_SHARD":
        sharding_strategy = ShardingStrategy.FULL_SHARD
    else:
        raise ValueError(f"unknown strategy {strategy}")

    model = FullyShardedDataParallel(
        model,
        auto_wrap_policy=policy,
        mixed_precision=precision,
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        sharding_strategy=sharding_strategy,
        forward_prefetch=True,
        use_orig_params=True,
        device_id=torch.cuda.current_device(),
    )
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--auto-wrap", action="store_true")
    parser.add_argument("--mp", default="fp32")
    parser.add_argument("--strategy", default="FULL_SHARD")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    train(shard(Net(), args.auto_wrap, args.mp, args.strategy))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
