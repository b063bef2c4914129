"""FM426: methods of a wrapped model that run its layers beside `forward`."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_marked, check_noop, rewrite

HEAD = """\
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Base(nn.Module):
    def sample(self, x):
        return self.body(x)


class Net(Base):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(2, 2)

    def encode(self, x):
        return self.hidden(x)

    def hidden(self, x):
        self.train()
        return self.body(x)

    def loss(self, x):
        return self(x).sum()

    def size(self):
        return sum(p.numel() for p in self.parameters())

    def forward(self, x):
        return self.encode(x)


def main(x, other):
    net = Net()
    net.encode(x)
    model = FSDP(net)
    model(x).backward()
"""


def test_noop() -> None:
    check_noop("model.encode(x).backward()\n")


@pytest.mark.parametrize(
    "statement",
    [
        "model.loss(x)",
        "model.size()",
        "model.forward(x)",
        "model.missing(x)",
        "other.encode(x)",
        "with FSDP.summon_full_params(model):\n        model.encode(x)",
        "register_fsdp_forward_method(model, 'encode')\n    model.encode(x)",
    ],
)
def test_nothing_to_say(statement: str) -> None:
    assert "FM426" not in {finding.rule for finding in rewrite(HEAD + f"    {statement}\n").findings}


@pytest.mark.parametrize("called", ["model.encode(x)", "model.module.encode(x)", "model.hidden(x)", "model.sample(x)"])
def test_found_once(called: str) -> None:
    check_marked(HEAD + f"    print({called})\n    return {called}\n", "FM426", Level.REVIEW)
