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


def wrap(model, args):
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[args.dtype]
    model.to(torch.cuda.current_device())
    if args.sync_module_states:
        for tensor in [*model.parameters(), *model.buffers()]:
            dist.broadcast(tensor.detach(), src=0)
    fsdp_kwargs = {
        "offload_policy": CPUOffloadPolicy() if args.cpu_offload is True else OffloadPolicy(),
        "mp_policy": MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype),
    }
    if args.mode == "zero2":
        fsdp_kwargs["reshard_after_forward"] = False
    if args.mode == "no_shard":
        shape = (dist.get_world_size(), 1)
        fsdp_kwargs["mesh"] = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
    else:
        for block in model.blocks:
            fully_shard(block, **fsdp_kwargs)
    return fully_shard(model, **fsdp_kwargs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=["zero2", "zero3", "no_shard"], default="zero3")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--cpu-offload", action="store_true")
    parser.add_argument("--sync-module-states", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    train(wrap(Net(), args))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
