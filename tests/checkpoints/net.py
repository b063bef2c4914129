"""The model that the programs of these tests train, and their data: the same loss on any number of processes."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


class Block(nn.Module):
    """Odd sizes, so that shards are uneven and one process can hold none of a bias; buffers of several kinds."""

    def __init__(self, width: int = 9) -> None:
        super().__init__()
        self.up = nn.Linear(width, 17)
        self.down = nn.Linear(17, width)
        self.norm = nn.LayerNorm(width)
        self.register_buffer("scale", torch.linspace(0.9, 1.1, width))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("cache", torch.ones(3), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return (x + self.norm(self.down(torch.tanh(self.up(x))))) * self.scale


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inp = nn.Linear(6, 9)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.out = nn.Linear(9, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def batch(step: int) -> torch.Tensor:
    """This process's rows of a batch that is the same for any number of processes."""
    rows = torch.randn(8, 6, generator=torch.Generator().manual_seed(step))
    return rows.chunk(dist.get_world_size())[dist.get_rank()]


def train(model: nn.Module, optimizer: torch.optim.Optimizer, first: int, steps: int = 3) -> list[float]:
    """The loss of each step over the whole batch."""
    losses = []
    for step in range(first, first + steps):
        loss = (model(batch(step)) - 1).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(total := loss.detach().clone())
        losses.append(total.item() / dist.get_world_size())
    return losses
