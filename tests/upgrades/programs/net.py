"""What the programs of this folder train: a classifier, with FSDP2, in bf16, its layers checkpointed; and its data."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

WIDTH, CLASSES = 48, 10


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Classifier(nn.Module):
    def __init__(self, width=WIDTH, depth=3, classes=CLASSES):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
        self.out = nn.Linear(width, classes)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.out(x).float()


def build_model():
    torch.manual_seed(0)
    model = Classifier()
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Layer))
    fsdp_kwargs = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}
    for layer in model.layers:
        fully_shard(layer, **fsdp_kwargs)
    return fully_shard(model, **fsdp_kwargs)


def batches(seed, count):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        x = torch.randn(16, WIDTH, generator=generator)
        yield x.cuda(), x[:, :CLASSES].argmax(1).cuda()


def update(loss, optimizer):
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
