import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard


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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--cpu-offload", action="store_true")
    parser.add_argument("--sharding-strategy", choices=["full", "hybrid"], default="full")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    dtype = torch.bfloat16 if args.bf16 else torch.get_default_dtype()
    model = Net()
    mixed_precision_policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)

    if args.sharding_strategy == "full":
        mesh = None
    elif args.sharding_strategy == "hybrid":
        local = torch.cuda.device_count()
        shape = (dist.get_world_size() // local, local)
        mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
    else:
        raise NotImplementedError("Available sharding strategies are full and hybrid")

    if args.cpu_offload:
        offload_policy = CPUOffloadPolicy()
    else:
        offload_policy = OffloadPolicy()

    fsdp_kwargs = {"mesh": mesh, "mp_policy": mixed_precision_policy, "offload_policy": offload_policy}
    for block in model.blocks:
        fully_shard(block, **fsdp_kwargs)
    fully_shard(model, **fsdp_kwargs)
    train(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
