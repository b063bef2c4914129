"""FM457: attributes that FSDP1 kept on its wrapper, away from the model that reads them."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import code, rewrite, rewrite_files

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.act = torch.nn.Linear(8, 8), torch.nn.GELU()

    def forward(self, x):
        return self.act(self.layer(x))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(2))
        self.head, self.temperature = Block(), 1.0

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x) / self.temperature

    def cool(self):
        self.temperature = 0.5


"""
LEFT = {
    "before the wrap": """\
        def main():
            net = Net()
            net.temperature = 2.0
            return FSDP(net)
        """,
    "on the model inside": """\
        def main():
            model = FSDP(Net())
            model.module.temperature = 2.0
            return model
        """,
    "on the model inside, by a function": """\
        def unwrap(model):
            return model.module if hasattr(model, "module") else model


        def main():
            model = FSDP(Net())
            unwrap(model).temperature = 2.0
            net = unwrap(model)
            net.temperature = 1.0
            return model
        """,
    "that no module reads": """\
        def main():
            model = FSDP(Net())
            model.epoch = 2
            return model
        """,
    "of a child that is wrapped": """\
        def main():
            net = Net()
            for name, child in net.named_children():
                setattr(net, name, FSDP(child))
            return FSDP(net)
        """,
    "of a part that is no unit": """\
        def main():
            model = FSDP(Net())
            model.blocks[0].act = torch.nn.SiLU()
            return model
        """,
    "of every module": """\
        def main():
            model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}))
            for module in model.modules():
                if isinstance(module, Block):
                    module.act = torch.nn.SiLU()
            return model
        """,
}
FOUND = {
    "in a loop": """\
        def main():
            model = FSDP(Net())
            for step in range(3):
                model.temperature = 1.0 + step
            return model
        """,
    "of what it was": """\
        def main():
            model = FSDP(Net())
            model.temperature *= 0.5
            return model
        """,
    "by its name": """\
        def main():
            model = FSDP(Net())
            setattr(model, "temperature", 2.0)
            return model
        """,
    "by a computed name": """\
        def main(options):
            model = FSDP(Net())
            for name, value in options.items():
                setattr(model, name, value)
            return model
        """,
    "where a trainer makes the model": """\
        class Trainer:
            def __init__(self, net):
                self.model = FSDP(net)
                self.model.temperature = 2.0
        """,
    "of a unit": """\
        def main():
            model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}))
            model.blocks[0].act = torch.nn.SiLU()
            return model
        """,
    "of each unit": """\
        def main():
            model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}))
            for block in model.blocks:
                block.act = torch.nn.SiLU()
            return model
        """,
}


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_what_came_to_the_model_is_left_alone(text: str) -> None:
    assert "FM457" not in {finding.rule for finding in rewrite(HEAD + code(text)).findings}


@pytest.mark.parametrize("text", FOUND.values(), ids=FOUND)
def test_what_stayed_on_the_wrapper_is_told(text: str) -> None:
    found = [finding for finding in rewrite(HEAD + code(text)).findings if finding.rule == "FM457"]
    assert [finding.level for finding in found] == [Level.REVIEW]


def test_it_is_set_in_another_file() -> None:
    callback = """\
import torch


class Cooling:
    def on_epoch(self, model):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        model.temperature = 0.5
"""
    main = "from callback import Cooling\n" + HEAD + "model = FSDP(Net())\nCooling().on_epoch(model)\n"
    result = rewrite_files({"train.py": main, "callback.py": callback})
    assert [f.path.name for f in result.findings if f.rule == "FM457"] == ["callback.py"]
