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


class Core:
    fsdp_defaults = {
        "reshard_after_forward": False,
        "mp_policy": MixedPrecisionPolicy(
            param_dtype=torch.bfloat16,
            reduce_dtype=torch.float32,
        ),
    }

    def __init__(self, device):
        self.device = device

    def setup_models(self, generator, generator_ema=None):
        for block in generator.blocks:
            fully_shard(block, **self.fsdp_defaults)
        fully_shard(generator, **self.fsdp_defaults)
        if generator_ema is not None:
            for block in generator_ema.blocks:
                fully_shard(block, **self.fsdp_defaults)
            fully_shard(generator_ema, **self.fsdp_defaults)
        return generator, generator_ema


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    core = Core(torch.cuda.current_device())
    generator, ema = core.setup_models(Net(), Net())
    train(generator)
    with torch.no_grad():
        print(ema(torch.ones(1, 8, device="cuda")).mean().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
