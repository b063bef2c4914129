import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
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

    def get_wrap_list(self):
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
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(step, loss.item())


def setup_fsdp(model, data_parallel, precision, group):
    model.to(torch.cuda.current_device())
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.detach(), src=dist.get_global_rank(group, 0), group=group)
    fsdp_kwargs = {
        "mesh": DeviceMesh.from_group(group, "cuda"),
        "mp_policy": MixedPrecisionPolicy(
            param_dtype={"fp32": torch.float, "bf16": torch.bfloat16}[precision],
            reduce_dtype=torch.float,
        ),
        **{"fsdp": {}, "sdp": {"reshard_after_forward": False}}[data_parallel],
    }
    for block in model.get_wrap_list():
        fully_shard(block, **fsdp_kwargs)
    fully_shard(model, **fsdp_kwargs)
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-parallel", choices=["fsdp", "sdp"], default="fsdp")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    group = dist.new_group(list(range(dist.get_world_size())))
    train(setup_fsdp(Net(), args.data_parallel, args.precision, group))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
