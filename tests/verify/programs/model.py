"""A tiny causal transformer and its data, shared by the FSDP1 and the FSDP2 program."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS, VOCABULARY, LENGTH, DEPTH = 32, 4, 61, 12, 2


@dataclass(frozen=True)
class Options:
    """What a test varies. `mutation` names the mistake the FSDP2 program makes; empty: none."""

    precision: str = "fp32"
    reduce: str = ""
    accumulate: int = 1
    clip: float = 0.1
    dropout: float = 0.0
    checkpointing: bool = False
    strategy: str = "FULL_SHARD"
    use_orig_params: bool = True
    sync_module_states: bool = False
    meta: bool = False
    tied: bool = False
    unused: bool = False
    frozen: bool = False
    autocast: bool = False
    evaluate: bool = False
    optimizer: str = "AdamW"
    lr: float = 1e-3
    weight_decay: float = 0.01
    decay_groups: bool = False
    schedule: bool = False
    optimizers: int = 1
    steps: int = 40
    evaluate_early: int = 0
    lora: int = 0
    teacher: bool = False
    restore: int = 0
    seed: int = 0
    mutation: str = ""


def load_options() -> Options:
    return Options(**json.loads(Path(__file__).with_name("options.json").read_text()))


class Adapted(nn.Module):
    """A frozen linear layer with a trained one of rank `rank` beside it."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


class Block(nn.Module):
    def __init__(self, dropout: float, lora: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        if lora:
            self.qkv, self.out = Adapted(self.qkv, lora), Adapted(self.out, lora)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch = x.shape[0]
        q, k, v = self.qkv(self.norm1(x)).view(batch, LENGTH, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, LENGTH, WIDTH)
        x = x + self.drop(self.out(mixed))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class Transformer(nn.Module):
    def __init__(self, options: Options) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.place = nn.Parameter(torch.empty(LENGTH, WIDTH))
        self.blocks = nn.ModuleList([Block(options.dropout, options.lora) for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if options.unused:
            self.spare = nn.Linear(WIDTH, WIDTH)
        if options.tied:
            self.head.weight = self.embed.weight
        if options.frozen:
            self.embed.requires_grad_(False)
        self.register_buffer("scale", torch.full((1,), 0.5), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.place, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        x = x * self.scale.to(x.dtype) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batches(options: Options, rank: int) -> list[Tensor]:
    """All batches of a rank, of shape (4, LENGTH + 1)."""
    generator = torch.Generator().manual_seed(7 + rank + 1000 * options.seed)
    count = options.steps * options.accumulate
    found = []
    for _ in range(count):
        first = torch.randint(0, VOCABULARY, (4, 1), generator=generator)
        noise = torch.randint(0, 2, (4, LENGTH + 1), generator=generator)
        found.append((first * 3 + torch.arange(LENGTH + 1) * 7 + noise) % VOCABULARY)
    return found


def loss_of(model: nn.Module, batch: Tensor) -> Tensor:
    logits = model(batch[:, :-1])
    return F.cross_entropy(logits.reshape(-1, VOCABULARY).float(), batch[:, 1:].reshape(-1))


def optimizer_for(options: Options, model: nn.Module) -> torch.optim.Optimizer:
    named = list(model.named_parameters())
    if options.decay_groups:
        decayed = [p for name, p in named if "norm" not in name and not name.endswith("bias")]
        kept = [p for name, p in named if "norm" in name or name.endswith("bias")]
        groups = [{"params": decayed}, {"params": kept, "weight_decay": 0.0}]
    else:
        groups = [{"params": [p for _, p in named]}]
    if options.optimizer == "SGD":
        return torch.optim.SGD(groups, lr=options.lr, momentum=0.9)
    return torch.optim.AdamW(groups, lr=options.lr, weight_decay=options.weight_decay)
