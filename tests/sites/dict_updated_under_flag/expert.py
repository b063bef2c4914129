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
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(step, loss.item())


def unit_modules(model, args):
    return [] if args.no_units else model.blocks


def shard(model, args):
    settings = {} if args.sharding == "FULL_SHARD" else {"reshard_after_forward": False}
    if args.bf16:
        settings["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model.to(torch.cuda.current_device())
    for block in unit_modules(model, args):
        fully_shard(block, **settings)
    return fully_shard(model, **settings)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sharding", choices=["FULL_SHARD", "SHARD_GRAD_OP"], default="FULL_SHARD")
    parser.add_argument("--no-units", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    train(shard(Net(), args))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
