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
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(step, loss.item())


def shard(model, args, device):
    model.to(device)
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.detach(), src=0)
    mp_policy = MixedPrecisionPolicy(
        param_dtype={"fp32": torch.float, "bf16": torch.bfloat16}[args.dtype],
        reduce_dtype={"fp32": torch.float, "bf16": torch.bfloat16}[args.reduce_dtype or args.dtype],
    )
    fsdp_kwargs = {"full": {}, "grad_op": {"reshard_after_forward": False}}[args.parallel]
    for block in model.units():
        fully_shard(block, mp_policy=mp_policy, **fsdp_kwargs)
    fully_shard(model, mp_policy=mp_policy, **fsdp_kwargs)
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
