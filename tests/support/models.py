"""Small models for the parity runs, each with one thing in it that wrapping can get wrong."""

from __future__ import annotations

import torch
from torch import nn

WIDTH = 12


class Block(nn.Module):
    """Odd sizes, so that shards are uneven, and a float32 buffer that promotes the residual stream."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.up = nn.Linear(width, 17)
        self.down = nn.Linear(17, width)
        self.norm = nn.LayerNorm(width)
        self.register_buffer("scale", torch.linspace(0.9, 1.1, width), persistent=False)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.scale.copy_(torch.linspace(0.9, 1.1, self.scale.numel()))
            self.count.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.up(x.to(self.up.weight.dtype)))
        return (x + self.norm(self.down(hidden))) * self.scale


class Plain(nn.Module):
    """Linear, three blocks, Linear."""

    def __init__(self) -> None:
        super().__init__()
        self.inp = nn.Linear(8, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x.to(self.inp.weight.dtype))


class BufferFree(nn.Sequential):
    """Nothing but parameters."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))


class Outer(nn.Module):
    """A block inside of a block-like module: targets that nest."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Linear(WIDTH, WIDTH)
        self.inner = Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(torch.tanh(self.own(x.to(self.own.weight.dtype))))


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inp = nn.Linear(8, WIDTH)
        self.layers = nn.ModuleDict({"a": Outer(), "b": Outer()})
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.layers["b"](self.layers["a"](self.inp(x))).to(self.inp.weight.dtype))


class Attention(nn.Module):
    """An attention module, whose `out_proj` is read without a call of its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.inp = nn.Linear(8, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.block = Block()
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inp(x).unsqueeze(1).repeat(1, 3, 1)
        return self.out(self.block(self.attention(x, x, x, need_weights=False)[0].mean(1)))


class BatchNormed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inp = nn.Linear(8, WIDTH)
        self.norms = nn.ModuleList([nn.BatchNorm1d(WIDTH), nn.BatchNorm1d(WIDTH)])
        self.blocks = nn.ModuleList([Block(), Block()])
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inp(x)
        for block, norm in zip(self.blocks, self.norms, strict=True):
            x = norm(block(x).to(self.inp.weight.dtype))
        return self.out(x)


class Rootless(nn.Module):
    """A root without parameters of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(Block(8), Block(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class Shared(nn.Module):
    """One block under two parents."""

    def __init__(self) -> None:
        super().__init__()
        block = Block()
        self.inp = nn.Linear(8, WIDTH)
        self.first = nn.Sequential(nn.Linear(WIDTH, WIDTH), block)
        self.second = nn.Sequential(nn.Linear(WIDTH, WIDTH), block)
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.second(self.first(self.inp(x))))


class Tied(nn.Module):
    """Embedding and head in one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, 8, bias=False)
        self.table = nn.Linear(8, WIDTH, bias=False)
        self.head.weight = nn.Parameter(torch.randn(8, WIDTH) / 4)
        self.inp = nn.Linear(WIDTH, 8, bias=False)
        self.inp.weight = self.head.weight
        self.block = Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inp(self.block(x @ self.head.weight))


class Masking(Block):
    """A block that is handed float and integer tensors beside its input."""

    def forward(self, x: torch.Tensor, *, mask: torch.Tensor, extra: dict[str, torch.Tensor]) -> torch.Tensor:
        return super().forward(x) * mask[:, extra["columns"]]


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inp = nn.Linear(8, WIDTH)
        self.blocks = nn.ModuleList([Masking(), Masking()])
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.linspace(0.9, 1.1, x.shape[0] * WIDTH).view(-1, WIDTH)
        extra = {"columns": torch.arange(WIDTH).flip(0)}
        x = self.inp(x)
        for block in self.blocks:
            x = block(x, mask=mask, extra=extra)
        return self.out(x.to(self.inp.weight.dtype))


class TiedTable(nn.Module):
    """The weight of one layer is that of another, and is read without its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.inp = nn.Linear(8, WIDTH)
        self.block = Block()
        self.out = nn.Linear(8, WIDTH, bias=False)
        self.out.weight = self.inp.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(self.inp(x)) @ self.out.weight


class Unused(nn.Module):
    """Parameters that never get a gradient, in a unit that does, and a unit that never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.inp = nn.Linear(8, WIDTH)
        self.block = Outer()
        self.block.spare = nn.Linear(3, 3)
        self.spare = Block()
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.block(self.inp(x)))


class Frozen(Plain):
    def __init__(self) -> None:
        super().__init__()
        for block in self.blocks:
            block.up.requires_grad_(False)


class ChannelsLast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(2, 6, 2, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 2))
        self.out = nn.Linear(16, 1)
        self.to(memory_format=torch.channels_last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.view(-1, 2, 2, 2).to(memory_format=torch.channels_last)
        return self.out(self.features(x).flatten(1))


class SelfNested(nn.Module):
    """A module that holds others of its own kind."""

    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.inp = nn.Linear(8, 8)
        self.inner = SelfNested(depth - 1) if depth else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.inp(x))
        return x if self.inner is None else self.inner(x)


class Speaker(Plain):
    """A model with methods beside forward."""

    def generate(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([self(x + step) for step in range(3)])

    def embed(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.inp(x)))
