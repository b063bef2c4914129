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
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(step, loss.item())


def get_fsdp_kwargs(name: str) -> dict:
    if name == "FULL_SHARD":
        return {}
    elif name == "SHARD_GRAD_OP":
        return {"reshard_after_forward": False}
    else:
        raise ValueError(f"Invalid sharding_strategy: {name}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sharding-strategy", default="SHARD_GRAD_OP")
    parser.add_argument("--precision", choices=["fp16-mixed", "bf16-mixed", "32-true"], default="bf16-mixed")
    config = parser.parse_args()
    half_precision = config.precision == "fp16-mixed" or config.precision == "bf16-mixed"
    half_precision_dtype = torch.bfloat16 if config.precision == "bf16-mixed" else torch.float16
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    fsdp_kwargs = get_fsdp_kwargs(config.sharding_strategy)
    model = Net().cuda()
    fully_shard(
        model,
        mp_policy=MixedPrecisionPolicy(param_dtype=half_precision_dtype) if half_precision else MixedPrecisionPolicy(),
        **fsdp_kwargs,
    )
    train(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
