"""FM405: parameters that are kept from above the wrap for an optimizer that is built below it."""

from __future__ import annotations

import pytest

from ..helpers import code, rewrite

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

"""
PICKED = """
optimizer = torch.optim.SGD([p for p in model.parameters() if id(p) in kept], lr=0.1)
"""
GIVEN = """
optimizer = torch.optim.SGD(kept, lr=0.1)
"""
NET = code("""
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Linear(4, 4)
            self.head = torch.nn.Linear(4, 4)

        def groups(self):
            return [{"params": [p for p in self.parameters() if p.ndim > 1]}]

        def split(self):
            decay, rest = [], []
            for name, p in self.named_parameters():
                (rest if "bias" in name else decay).append(p)
            return decay, rest


    net = Net()
    """)

KEPT = {
    "their identities, in a set": ("kept = {id(p) for p in net.head.parameters()}", PICKED),
    "their identities, in a list": ("kept = list(map(id, net.head.parameters()))", PICKED),
    "their identities, one by one": ("kept = []\nfor p in net.head.parameters():\n    kept.append(id(p))", PICKED),
    "their names by their identities": ("kept = {id(p): n for n, p in net.named_parameters()}", PICKED),
    "in a list that names them": ("kept = [net.head.weight, net.head.bias]", GIVEN),
    "in a dict that names them": ('kept = [{"params": [net.head.weight]}, {"params": net.body.weight}]', GIVEN),
    "by getattr": ('weight = getattr(net.head, "weight")\nkept = [weight]', GIVEN),
    "by get_parameter": ('weight = net.get_parameter("head.weight")\nkept = [weight]', GIVEN),
    "of the modules": ("kept = [m.weight for m in net.modules() if isinstance(m, torch.nn.Linear)]", GIVEN),
    "of the modules, one by one": (
        "kept = []\nfor m in net.modules():\n    if isinstance(m, torch.nn.Linear):\n        kept.append(m.weight)",
        GIVEN,
    ),
    "of a list of the modules": (
        "linear = [m for m in net.modules() if isinstance(m, torch.nn.Linear)]\nkept = [m.weight for m in linear]",
        GIVEN,
    ),
    "of a list of the modules, one by one": (
        "linear = []\nfor m in net.modules():\n    linear.append(m)\nkept = []\n"
        "for m in linear:\n    kept.append(m.weight)",
        GIVEN,
    ),
    "of each module": ("kept = [p for m in net.modules() for p in m.parameters(recurse=False)]", GIVEN),
    "of each module, by its own dict": (
        "kept = []\nfor m in net.modules():\n    for p in m._parameters.values():\n        kept.append(p)",
        GIVEN,
    ),
    "in optimizers, one of each part": (
        "kept = {n: torch.optim.SGD(m.parameters()) for n, m in net.named_children()}",
        "\nfor optimizer in kept.values():\n    optimizer.step()\n",
    ),
    "in optimizers, one by one": (
        "kept = []\nfor m in net.children():\n    kept.append(torch.optim.SGD(m.parameters()))",
        "\nfor optimizer in kept:\n    optimizer.step()\n",
    ),
    "by a method of the model": ("kept = net.groups()", GIVEN),
    "by a method of the model, in two lists": ("kept, others = net.split()", GIVEN),
}


@pytest.mark.parametrize(("line", "below"), KEPT.values(), ids=KEPT)
def test_what_keeps_them_comes_to_stand_below_the_wrap(line: str, below: str) -> None:
    result = rewrite(HEAD + NET + line + "\nmodel = FSDP(net, use_orig_params=True)" + below)
    assert "FM405" in {finding.rule for finding in result.findings}
    assert result.text.index("model = fully_shard(net)\n") < result.text.index("kept")


RIGHT = {
    "names of modules": "kept = [name for name, m in net.named_modules()]",
    "names of modules, one by one": "kept = []\nfor name, m in net.named_modules():\n    kept.append(name)",
    "modules": "kept = [m for m in net.modules() if isinstance(m, torch.nn.Linear)]",
    "names of a list of modules": "some = [m for m in net.modules()]\nkept = [type(m) for m in some]",
    "a module of some": "kept = torch.nn.Sequential(*net.children())",
    "shapes": "kept = [net.head.weight.shape, net.head.bias.dtype]",
    "dimensions by name": "kept = {name: p.ndim for name, p in net.named_parameters()}",
    "sizes": "kept = [p.numel() for p in net.parameters()]",
    "copies": "kept = [net.head.weight.detach().clone()]",
    "how many": "kept = {'head': net.head.weight.numel()}",
    "whether any is there": "kept = any(isinstance(m, torch.nn.Linear) for m in net.modules())",
}


@pytest.mark.parametrize("line", RIGHT.values(), ids=RIGHT)
def test_what_keeps_none_stays_above(line: str) -> None:
    result = rewrite(HEAD + NET + line + "\nmodel = FSDP(net, use_orig_params=True)\nprint(kept)\n")
    assert {finding.rule for finding in result.findings} == {"FM101"}
    assert result.text.index("kept") < result.text.index("model = fully_shard(net)\n")
