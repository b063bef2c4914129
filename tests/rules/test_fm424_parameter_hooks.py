"""FM424: hooks on parameters, which FSDP1 and FSDP2 run at other times, or never."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_marked, check_noop, rewrite

HEAD = """\
import library
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward
from torch.optim import SGD
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net, other, hook):
"""


def test_noop() -> None:
    check_noop("for p in model.parameters():\n    p.register_hook(hook)\n")


FINE = [
    "for p in other.parameters():\n        p.register_hook(hook)\n    model = FSDP(net)",
    "net.register_forward_hook(hook)\n    model = FSDP(net)\n    model.register_full_backward_hook(hook)",
    "for module in net.modules():\n        module.register_forward_pre_hook(hook)\n    model = FSDP(net)",
    "_apply_optimizer_in_backward(SGD, nn.Linear(2, 2).parameters(), {})\n    model = FSDP(net)",
    "net = library.Net()\n    _apply_optimizer_in_backward(SGD, net.part.parameters(), {})\n    FSDP(other)",
    "model = FSDP(net)\n    out = model(other)\n    out.register_hook(hook)",
]


@pytest.mark.parametrize("statements", FINE)
def test_nothing_to_say(statements: str) -> None:
    assert {finding.rule for finding in rewrite(HEAD + f"    {statements}\n").findings} == {"FM101"}


LOOP = "for p in {}.parameters():\n        p.{}(hook)"
FOUND = [
    (Level.REVIEW, LOOP.format("net", "register_hook") + "\n    model = FSDP(net)"),
    (Level.REVIEW, LOOP.format("net", "register_post_accumulate_grad_hook") + "\n    model = FSDP(net)"),
    (Level.MANUAL, "model = FSDP(net)\n    " + LOOP.format("model", "register_hook")),
    (Level.MANUAL, "model = FSDP(net)\n    " + LOOP.format("model", "register_post_accumulate_grad_hook")),
    (Level.MANUAL, "model = FSDP(net)\n    model.out.weight.register_hook(hook)"),
    (Level.MANUAL, "model = FSDP(net)\n    _apply_optimizer_in_backward(SGD, model.parameters(), {'lr': 0.1})"),
    (
        Level.MANUAL,
        "model = FSDP(net)\n    params = list(model.parameters())\n    _apply_optimizer_in_backward(SGD, params, {})",
    ),
]


@pytest.mark.parametrize(("level", "statements"), FOUND)
def test_found(level: Level, statements: str) -> None:
    check_marked(HEAD + f"    {statements}\n", "FM424", level)
