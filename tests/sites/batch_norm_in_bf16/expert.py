import os
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.BatchNorm1d(dim)
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


def shard(model):
    mp_policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    # FSDP1 casts inputs at the root only, and leaves BatchNorm in float32, in units of its own.
    block_policy = replace(mp_policy, cast_forward_inputs=False)
    norm_policy = MixedPrecisionPolicy(param_dtype=torch.float32, output_dtype=torch.bfloat16)
    model.to(torch.cuda.current_device())
    for block in model.blocks:
        fully_shard(block.norm, mp_policy=norm_policy)
        fully_shard(block, mp_policy=block_policy)
    return fully_shard(model, mp_policy=mp_policy)


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    train(shard(Net()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
