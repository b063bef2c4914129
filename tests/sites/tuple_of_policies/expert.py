import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

half = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float16)
bfloat = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)


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


def get_mixed_precision(cfg):
    if cfg.mixed_precision:
        policy = bfloat if torch.cuda.is_bf16_supported() else half
    else:
        policy = MixedPrecisionPolicy()
    return policy


def get_mesh(cfg):
    if cfg.sharding_strategy != "hsdp":
        return None
    local = torch.cuda.device_count()
    return init_device_mesh("cuda", (dist.get_world_size() // local, local), mesh_dim_names=("replicate", "shard"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sharding-strategy", choices=["fsdp", "hsdp"], default="fsdp")
    parser.add_argument("--mixed-precision", action="store_true")
    cfg = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    fsdp_kwargs = {"mesh": get_mesh(cfg), "mp_policy": get_mixed_precision(cfg)}
    model = Net()
    for block in model.blocks:
        fully_shard(block, **fsdp_kwargs)
    fully_shard(model, **fsdp_kwargs)
    train(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
