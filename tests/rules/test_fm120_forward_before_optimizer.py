"""FM120: a model that runs before its optimizer is built."""

from __future__ import annotations

import pytest

from ..helpers import check_marked, code, rewrite

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(net, other, batch):
    model = FSDP(net)
"""

FINE = [
    pytest.param("optimizer = torch.optim.SGD(model.parameters())\nmodel(batch)", id="optimizer first"),
    pytest.param("model(batch).sum().backward()\noptimizer = torch.optim.SGD(model.parameters())", id="backward"),
    pytest.param("model(batch)\nmodel.reshard()\noptimizer = torch.optim.SGD(model.parameters())", id="resharded"),
    pytest.param("model(batch)\noptimizer = torch.optim.SGD(other.parameters())", id="another model's optimizer"),
    pytest.param("other(batch)\noptimizer = torch.optim.SGD(model.parameters())", id="another model runs"),
    pytest.param("model(batch)\nprint(sum(p.numel() for p in model.parameters()))", id="no optimizer"),
    pytest.param("model(batch)", id="no parameters"),
]


@pytest.mark.parametrize("body", FINE)
def test_noop(body: str) -> None:
    result = rewrite(HEAD + "".join(f"    {line}\n" for line in body.splitlines()))
    assert "FM120" not in {finding.rule for finding in result.findings}


MARKED = [
    pytest.param("torch.optim.AdamW(model.parameters(), lr=1)", id="torch's"),
    pytest.param("build_optimizer([p for p in model.parameters() if p.requires_grad])", id="a function's"),
    pytest.param("bnb.optim.Adam8bit(params=list(model.named_parameters()))", id="by keyword"),
]


@pytest.mark.parametrize("optimizer", MARKED)
def test_marked(optimizer: str) -> None:
    body = f"    with torch.no_grad():\n        model(batch)\n    optimizer = {optimizer}\n    return optimizer\n"
    check_marked(code(HEAD + body), "FM120", words="before its optimizer is built", line=8)
