import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


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
    if mp == "bf16":
        precision = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16,
            # Gradients are reduced in full precision.
            reduce_dtype=torch.float32,
        )
    elif mp == "fp32":
        precision = MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float32)
    else:
        raise ValueError(f"unknown precision {mp}")

    if strategy == "SHARD_GRAD":
        fsdp_kwargs = {"reshard_after_forward": False}
    elif strategy == "FULL_SHARD":
        fsdp_kwargs = {}
    else:
        raise ValueError(f"unknown strategy {strategy}")

    if auto_wrap:
        for block in model.blocks:
            fully_shard(block, mp_policy=precision, **fsdp_kwargs)
    fully_shard(model, mp_policy=precision, **fsdp_kwargs)
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
