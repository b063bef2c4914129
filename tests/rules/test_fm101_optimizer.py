"""FM101: an optimizer that is built before the model is sharded would never update it, without an error."""

from __future__ import annotations

import pytest

from codemods.vocabulary import Level

from ..helpers import code, rewrite

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

"""

RIGHT = [
    pytest.param(
        """
        def main(net):
            model = FSDP(net)
            optimizer = torch.optim.AdamW(model.parameters())
            return model, optimizer
        """,
        id="below the wrap",
    ),
    pytest.param(
        """
        def main(teacher, net):
            optimizer = torch.optim.AdamW(teacher.parameters())
            model = FSDP(net)
            return model, optimizer
        """,
        id="of another model",
    ),
    pytest.param(
        """
        def main(net, sharded):
            if not sharded:
                return torch.optim.AdamW(net.parameters())
            model = FSDP(net)
            return torch.optim.AdamW(model.parameters())
        """,
        id="in a branch that returns",
    ),
    pytest.param(
        """
        def main(net):
            count = sum(p.numel() for p in net.parameters())
            for p in net.parameters():
                p.requires_grad = False
            model = FSDP(net)
            return model, count
        """,
        id="parameters only counted and frozen",
    ),
    pytest.param(
        """
        def single(net):
            return torch.optim.AdamW(net.parameters())


        def main(net):
            return FSDP(net)
        """,
        id="in another function",
    ),
]


@pytest.mark.parametrize("text", RIGHT)
def test_right_order_is_rewritten(text: str) -> None:
    result = rewrite(HEAD + "\n" + code(text))
    assert {level for _, level, _ in result.summary} == {"rewritten"}
    assert "FSDP(" not in result.text


WRONG = [
    pytest.param(
        """
        def main(model):
            optimizer = torch.optim.AdamW(model.parameters())
            model = FSDP(model, use_orig_params=True)
            return model, optimizer
        """,
        id="same function",
    ),
    pytest.param(
        """
        def main(net):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            model = FSDP(net)
            return model, optimizer
        """,
        id="model under another name",
    ),
    pytest.param(
        """
        def main(net):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            model = FSDP(net.cuda())
            return model, optimizer
        """,
        id="model moved in the call",
    ),
    pytest.param(
        """
        def main(net, **kwargs):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            model = FSDP(net, **kwargs)
            return model, optimizer
        """,
        id="call that only run time knows",
    ),
    pytest.param(
        """
        def main(net):
            parameters = list(net.parameters())
            optimizer = torch.optim.SGD(parameters, lr=0.1)
            model = FSDP(net)
            return model, optimizer
        """,
        id="parameters in a list",
    ),
    pytest.param(
        """
        def main(net):
            groups = [{"params": [p for n, p in net.named_parameters() if "bias" not in n]}]
            optimizer = torch.optim.AdamW(groups)
            model = FSDP(net)
            return model, optimizer
        """,
        id="groups",
    ),
    pytest.param(
        """
        class Trainer:
            def prepare(self):
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1)
                self.model = FSDP(self.model)
        """,
        id="attributes",
    ),
    pytest.param(
        """
        def make_optimizer(model):
            return torch.optim.AdamW(model.parameters())


        def main(model):
            optimizer = make_optimizer(model)
            model = FSDP(model)
            return model, optimizer
        """,
        id="made by a function",
    ),
    pytest.param(
        """
        class Net(torch.nn.Module):
            def configure_optimizers(self):
                return torch.optim.AdamW(self.parameters())


        def main():
            model = Net()
            optimizer = model.configure_optimizers()
            model = FSDP(model)
            return model, optimizer
        """,
        id="made by a method",
    ),
    pytest.param(
        """
        def wrap(model):
            return FSDP(model)


        def main(model):
            optimizer = torch.optim.AdamW(model.parameters())
            model = wrap(model)
            return model, optimizer
        """,
        id="wrapped by a function",
    ),
    pytest.param(
        """
        from bitsandbytes.optim import AdamW8bit


        def main(model):
            optimizer = AdamW8bit(model.parameters())
            model = FSDP(model)
            return model, optimizer
        """,
        id="of another library",
    ),
    pytest.param(
        """
        def main(model, name):
            optimizer = getattr(torch.optim, name)(model.parameters())
            model = FSDP(model)
            return model, optimizer
        """,
        id="chosen by name",
    ),
    pytest.param(
        """
        net = torch.nn.Linear(3, 3)
        optimizer = torch.optim.AdamW(net.parameters())


        def main():
            return FSDP(net)
        """,
        id="at the top of the file",
    ),
    pytest.param(
        """
        def main(model, sharded):
            if sharded:
                optimizer = torch.optim.AdamW(model.parameters())
            else:
                optimizer = torch.optim.SGD(model.parameters())
            if sharded:
                model = FSDP(model)
            return model, optimizer
        """,
        id="in a branch",
    ),
]


@pytest.mark.parametrize("text", WRONG)
def test_wrong_order_is_left_to_a_person(text: str) -> None:
    result = rewrite(HEAD + "\n" + code(text))
    assert result.after == result.before
    assert [(f.rule, f.level) for f in result.findings if "optimizer is built before" in f.message] == [
        ("FM101", Level.MANUAL)
    ]
    assert {finding.level for finding in result.findings} == {Level.MANUAL}


def test_wrong_order_beside_a_right_one_raises() -> None:
    text = code(
        """
        def main(model, other):
            optimizer = torch.optim.AdamW(model.parameters())
            model = FSDP(model)
            other = FSDP(other)
            return model, optimizer, other
        """
    )
    result = rewrite(HEAD + text)
    raised, left = result.text.splitlines()[5:7]
    assert raised.startswith('    raise NotImplementedError("fsdp-migrate FM101: build the optimizer below the wrap')
    assert left == "    model = FSDP(model)"
    assert "    fully_shard(other)\n" in result.text
