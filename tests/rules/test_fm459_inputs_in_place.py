"""FM459: units that write to their input in place, which is a view that fully_shard made."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import code, rewrite, rewrite_files

MODEL = """\
import torch
from torch import nn
from torch.nn import functional as F


class Inner(nn.Module):
    def forward(self, x):
        x *= 0.5
        return x


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.act = nn.ReLU(inplace=True)
        self.plain = nn.ReLU()
        self.gelu = nn.SiLU(True)
        self.inner = Inner()
        self.body = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(width, width))
        self.tail = nn.Sequential(nn.Linear(width, width), nn.ReLU(inplace=True))
        self.linear = nn.Linear(width, width)

    def forward(self, x, mask=None, step=0):
        {body}
        return self.linear(x)
"""
WRAP = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def wrap(net):
    return FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Block}))
"""


def levels(text: str) -> list[Level]:
    return [each.level for each in rewrite(text).findings if each.rule == "FM459"]


def block(body: str) -> str:
    return MODEL.replace("{body}", body.replace("\n", "\n        ")) + "\n\n" + WRAP


@pytest.mark.parametrize(
    "body",
    [
        "x += self.linear(x)",
        "x.mul_(2)",
        "x[:, 0] = 0",
        "x[:, 0] += 1",
        "x = self.act(x)",
        "x = self.gelu(x)",
        "y = self.inner(x)",
        "y = self.body(x)",
        "x = F.relu(x, inplace=True)",
        "x = torch.relu_(x)",
        "y = self.linear(x)\nx += y\nx = self.linear(x)",
    ],
)
def test_an_input_that_is_written_to(body: str) -> None:
    assert levels(block(body)) == [Level.MANUAL]
    assert levels(block(body).replace("ModuleWrapPolicy({Block})", "None")) == [], "the root's input needs no gradient"


def test_what_may_need_no_gradient_is_for_review() -> None:
    assert levels(block("mask += x")) == [Level.REVIEW]


@pytest.mark.parametrize(
    "body",
    [
        "x = self.plain(x)",
        "x = self.linear(x)\nx += 1.0\nx = self.act(x)",
        "y = self.linear(x)\ny += x\ny.mul_(x)",
        "y = self.tail(x)",
        "step += 1",
        "x.requires_grad_(True)",
        "with torch.no_grad():\n    x.clamp_(0, 1)",
        "for x in mask:\n    x += 1.0",
        "x = F.relu(x, inplace=False)",
    ],
)
def test_an_input_that_stays_as_it_is(body: str) -> None:
    assert levels(block(body)) == []


def test_a_forward_of_a_base_and_a_policy_in_another_file() -> None:
    model = MODEL.replace("{body}", "x += mask").replace("class Block", "class Base") + code(
        """


        class Block(Base):
            pass
        """
    )
    result = rewrite_files({"train.py": "from model import Block\n" + WRAP, "model.py": model})
    assert [each.rule for each in result.findings if each.rule == "FM459"] == ["FM459"]
