import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


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


def build(model, args):
    fsdp_kwargs = {} if args.zero == 3 else {"reshard_after_forward": False}
    if args.hybrid:
        world_size = dist.get_world_size()
        assert world_size % args.inner_degree == 0
        shape = (world_size // args.inner_degree, args.inner_degree)
        fsdp_kwargs["mesh"] = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
    for block in model.blocks:
        fully_shard(block, **fsdp_kwargs)
    return fully_shard(model, **fsdp_kwargs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--zero", type=int, choices=[2, 3], default=3)
    parser.add_argument("--hybrid", action="store_true")
    parser.add_argument("--inner-degree", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    train(build(Net().cuda(), args))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
