"""FM452: parameters of a wrapped model that are saved as they are."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_noop, rewrite

TEXT = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Average:
    def __init__(self, model):
        self.shadow = {}
        for name, param in model.named_parameters():
            self.shadow[name] = param.detach().clone().float()

    def state_dict(self):
        return {"shadow": self.shadow}


def main(net, path, rank):
    model = FSDP(net, use_orig_params=True)
    average = Average(model)
"""
SAVES = [
    "    torch.save(average.state_dict(), path)\n",
    "    if rank == 0:\n        torch.save({'average': average.shadow}, path)\n",
    "    own = {n: p.cpu() for n, p in model.named_parameters()}\n    torch.save(own, path)\n",
    "    own = {}\n    for n, p in model.named_parameters():\n        own[n] = p.data\n    torch.save(own, path)\n",
]
SAVES += [
    "    from torch_ema import ExponentialMovingAverage\n    ema = ExponentialMovingAverage(model.parameters(), 0.9)\n"
    "    torch.save(ema.state_dict(), path)\n",
    "    from torch_ema import ExponentialMovingAverage\n    params = list(model.parameters())\n"
    "    ema = ExponentialMovingAverage(params, 0.9)\n    torch.save(ema.state_dict(), path)\n",
]
STAYS = [
    "    from tools import build\n    adam = build(model.parameters(), class_name='torch.optim.Adam')\n"
    "    torch.save(adam.state_dict(), path)\n",
    "    from torch.optim.lr_scheduler import ConstantLR\n    rate = ConstantLR(torch.optim.SGD(model.parameters()))\n"
    "    torch.save(rate.state_dict(), path)\n",
    "    average.other = {}\n    torch.save(average.other, path)\n",
    "    own = {n: p.shape for n, p in model.named_parameters()}\n    torch.save(own, path)\n",
    "    own = {n: p for n, p in torch.nn.Linear(2, 2).named_parameters()}\n    torch.save(own, path)\n",
    "    with FSDP.summon_full_params(model):\n        own = {n: p.clone() for n, p in model.named_parameters()}\n"
    "    torch.save(own, path)\n",
]


def test_noop() -> None:
    check_noop("import torch\ntorch.save({n: p for n, p in net.named_parameters()}, path)\n")


@pytest.mark.parametrize("save", SAVES)
def test_what_is_saved_of_shards_needs_a_person(save: str) -> None:
    for path, level in (("path", Level.MANUAL), ("f'{path}.{rank}'", Level.REVIEW)):
        found = rewrite(TEXT + save.replace(" path)", f" {path})")).findings
        assert [each.level for each in found if each.rule == "FM452"] == [level]


@pytest.mark.parametrize("save", STAYS)
def test_what_is_whole_or_no_parameter_stays(save: str) -> None:
    assert "FM452" not in {finding.rule for finding in rewrite(TEXT + save).findings}
