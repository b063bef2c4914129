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


def get_mixed_precision(master_weight_type="fp32"):
    weight_type = torch.float32 if master_weight_type == "fp32" else torch.bfloat16
    mixed_precision = MixedPrecisionPolicy(
        param_dtype=weight_type,
        # Gradient communication precision.
        reduce_dtype=weight_type,
    )
    return mixed_precision


def shard(model, sharding_strategy, cpu_offload=False, master_weight_type="fp32"):
    fsdp_kwargs = {
        "mp_policy": get_mixed_precision(master_weight_type),
        "offload_policy": CPUOffloadPolicy() if cpu_offload else OffloadPolicy(),
    }
    if sharding_strategy == "full":
        for block in model.blocks:
            fully_shard(block, **fsdp_kwargs)
    elif sharding_strategy == "none":
        shape = (dist.get_world_size(), 1)
        fsdp_kwargs["mesh"] = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
    return fully_shard(model, **fsdp_kwargs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", choices=["full", "none"], default="full")
    parser.add_argument("--cpu-offload", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    transformer, teacher = Net(), Net()
    shard(transformer, args.strategy, args.cpu_offload)
    shard(teacher, args.strategy, args.cpu_offload)
    teacher.requires_grad_(False)
    train(transformer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
