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
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(step, loss.item())


def units_by_size(root, min_num_params):
    """The submodules with `min_num_params` parameters outside of smaller units, children first."""
    units = []

    def numel_in_units(module):
        numel = sum(p.numel() for p in module.parameters())
        done = sum(numel_in_units(child) for child in module.children())
        if module is root or numel - done < min_num_params or isinstance(module, (nn.ModuleList, nn.ModuleDict)):
            return done
        units.append(module)
        return numel

    numel_in_units(root)
    return units


def shard(module, zero, min_num_params):
    fsdp_kwargs = {"reshard_after_forward": False} if zero == "2" else {}
    if zero == "0":  # replicated: each shard is the whole parameter
        shape = (dist.get_world_size(), 1)
        fsdp_kwargs["mesh"] = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
    module.to(torch.cuda.current_device())
    for unit in units_by_size(module, min_num_params):
        fully_shard(unit, **fsdp_kwargs)
    return fully_shard(module, **fsdp_kwargs)


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
