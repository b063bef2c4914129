import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.nn.parallel import DistributedDataParallel as DDP


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


class TwoParts(nn.Module):
    def __init__(self, shared_group, head_group):
        super().__init__()
        self.encoder = Net().cuda()
        self.decoder = Net().cuda()
        use_fsdp = bool(int(os.getenv("USE_FSDP", "1")))
        strategy = os.getenv("FSDP_STRATEGY", "FULL_SHARD")
        sharding_strategy = getattr(ShardingStrategy, strategy)
        if use_fsdp:
            self.encoder = FSDP(
                self.encoder,
                process_group=shared_group,
                sharding_strategy=sharding_strategy,
            )
            self.decoder = FSDP(
                self.decoder,
                process_group=head_group,
                sharding_strategy=sharding_strategy,
            )
        else:
            self.encoder = DDP(self.encoder, process_group=shared_group)
            self.decoder = DDP(self.decoder, process_group=head_group)

    def forward(self, x):
        return self.decoder(self.encoder(x))


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    ranks = list(range(dist.get_world_size()))
    train(TwoParts(dist.new_group(ranks), dist.new_group(ranks)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
