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


def test_what_ran_with_no_shard_needs_a_person() -> None:
    text = HEAD.replace("FSDP(net)", "FSDP(net, sharding_strategy=ShardingStrategy.NO_SHARD, device_id=0)")
    text = text.replace("as FSDP\n", "as FSDP, ShardingStrategy\n")
    check_marked(text + "    print(model.encode(x))\n", "FM426", Level.MANUAL, "so did FSDP1 not")


LIBRARY = """\
import torch
from diffusers import AutoencoderKL
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


def main(x):
    vae = AutoencoderKL.from_pretrained("vae").cuda()
    vae = FSDP(vae, device_id=0, sharding_strategy=ShardingStrategy.{strategy})
    with torch.no_grad():
        {called}
"""


@pytest.mark.parametrize(
    ("called", "strategy", "is_found"),
    [
        ("vae.encode(x)", "NO_SHARD", True),
        ("vae.encode(x)", "FULL_SHARD", False),  # FSDP1 raised
        ("vae(x)", "NO_SHARD", False),
        ("vae.to(x)", "NO_SHARD", False),
        ("vae.generate(x)", "NO_SHARD", False),
    ],
)
def test_methods_of_a_librarys_model_that_ran_with_no_shard(called: str, strategy: str, is_found: bool) -> None:
    found = rewrite(LIBRARY.format(called=called, strategy=strategy)).findings
    assert [each.level for each in found if each.rule == "FM426"] == [Level.MANUAL] * is_found


UNITS = [
    "ModuleWrapPolicy({nn.Linear})",
    "ModuleWrapPolicy(module_classes={nn.ReLU, nn.Linear})",
    "partial(transformer_auto_wrap_policy, transformer_layer_cls=KINDS)",
]


@pytest.mark.parametrize("policy", UNITS)
def test_layers_that_are_units_gather_themselves(policy: str) -> None:
    imports = (
        "from functools import partial\n"
        "from torch.distributed.fsdp.wrap import ModuleWrapPolicy, transformer_auto_wrap_policy\n"
    )
    text = imports + HEAD.replace("class Base", "KINDS = {nn.Linear}\n\n\nclass Base", 1)
    units = text.replace("FSDP(net)", f"FSDP(net, auto_wrap_policy={policy})")
    for called in ("model.encode(x)", "model.sample(x)"):
        assert "FM426" not in {finding.rule for finding in rewrite(units + f"    {called}\n").findings}
    other = units.replace("Linear", "ReLU").replace("nn.ReLU(2, 2)", "nn.Linear(2, 2)")
    (found,) = [each for each in rewrite(other + "    model.encode(x)\n").findings if each.rule == "FM426"]
    assert "encode runs self.body past the wrapper" in found.message
