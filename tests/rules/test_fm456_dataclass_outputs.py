"""FM456: dataclasses, and classes of dicts, in which `fully_shard` before torch 2.12 finds no tensors."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from codemods.api import Level
from fsdp_migrate.pipeline import Options

from ..helpers import check_noop, rewrite, rewrite_files

HEAD = """\
from dataclasses import dataclass
from collections import namedtuple

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


@dataclass
class Output:
    logits: torch.Tensor
    size: int = 1


"""
NET = """\
class Net(nn.Module):
    def forward(self, x):
        return {returned}


"""
BUILD = "def build():\n    return FSDP(Net())\n"
REGISTERED = "torch.export.register_dataclass(Output)"


def net(returned: str, build: str = BUILD, head: str = HEAD) -> str:
    return head + NET.format(returned=returned) + build


def test_noop() -> None:
    check_noop(
        net("Output(x)", "def build():\n    return Net()\n").replace(
            "import FullyShardedDataParallel as FSDP", "import fully_shard"
        )
    )


RETURNS = {
    "at once": "Output(x)",
    "by name": "Output(logits=x)",
    "in a tuple": "Output(x), x",
    "under a condition": "Output(x) if self.training else x",
}


@pytest.mark.parametrize("name", RETURNS)
def test_is_registered_once(name: str) -> None:
    text = rewrite(net(RETURNS[name])).text
    assert text.count(REGISTERED) == 1
    assert text.index("class Output") < text.index(REGISTERED) < text.index("class Net")


def of_dicts(base: str, body: str = "pass") -> str:
    return f"import collections\n{HEAD[: HEAD.index('@dataclass')]}class Output({base}):\n    {body}\n\n\n"


BASES = {
    "dict": of_dicts("dict"),
    "ordered": of_dicts("collections.OrderedDict"),
    "of a class": of_dicts("dict").replace("class Output(dict):", "class Own(dict):\n    pass\n\n\nclass Output(Own):"),
    "dataclass": HEAD,
    "dataclass and dict": HEAD.replace("class Output:", "class Output(dict):"),
}


@pytest.mark.parametrize("name", BASES)
def test_pytree_sees_its_tensors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is where `fully_shard` looked for them until torch 2.11."""
    import torch
    from torch.utils._pytree import tree_leaves, tree_map

    text = rewrite(net("Output(logits=x)", head=BASES[name])).text
    module = ModuleType("train")
    monkeypatch.setitem(sys.modules, "train", module)
    exec(compile(text, "train.py", "exec"), vars(module))
    x = torch.ones(2)
    out = module.Net()(x)
    assert any(leaf is x for leaf in tree_leaves(out))
    assert type(tree_map(lambda leaf: leaf, out)) is module.Output


def test_dict_that_is_not_made_of_its_items() -> None:
    head = of_dicts("dict", "def __init__(self, logits):\n        self['logits'] = logits")
    (found,) = (finding for finding in rewrite(net("Output(x)", head=head)).findings if finding.rule == "FM456")
    assert found.level is Level.MANUAL
    assert "register_pytree_node(Output, …)" in found.hint


WRAPS = {
    "several calls": "def build():\n    return FSDP(Net()), FSDP(Net())\n",
    "of a policy": "def build(model):\n    return FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Net}))\n",
    "of a class made from it": "class Wide(Net):\n    pass\n\n\ndef build():\n    return FSDP(Wide())\n",
}


@pytest.mark.parametrize("name", WRAPS)
def test_class_is_seen(name: str) -> None:
    assert rewrite(net("Output(x)", WRAPS[name])).text.count(REGISTERED) == 1


def test_by_a_variable() -> None:
    text = (
        HEAD
        + "class Net(nn.Module):\n    def forward(self, x):\n        out = Output(x)\n        return out\n\n\n"
        + BUILD
    )
    assert REGISTERED in rewrite(text).text


OTHERS = {
    "another class": HEAD.replace("@dataclass\n", ""),
    "a base of a library": HEAD.replace("class Output:", "class Output(ModelOutput):").replace(
        "import torch\n", "import torch\nfrom transformers.utils import ModelOutput\n"
    ),
    "registered already": HEAD + f"{REGISTERED}\n\n\n",
    "a class of dicts that registers what derives from it": of_dicts(
        "dict", "def __init_subclass__(cls):\n        register_pytree_node(cls, flat, back)"
    ),
    "a dict of a library": of_dicts("collections.Counter"),
    "a named tuple": HEAD.replace("@dataclass\nclass Output:", "class Output(NamedTuple):").replace(
        "from dataclasses import dataclass", "from typing import NamedTuple"
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    result = rewrite(net("Output(x)", head=OTHERS[name]))
    assert result.text.count("register_dataclass") == OTHERS[name].count("register_dataclass")
    assert {finding.rule for finding in result.findings} == {"FM101"}


def test_newer_torch_needs_none() -> None:
    result = rewrite_files({"train.py": net("Output(x)")}, Options(torch_version=(2, 12)))
    assert REGISTERED not in result.after["train.py"]


def test_what_is_no_output_stays() -> None:
    """A dataclass that the caller of `forward` makes, or a function inside of it."""
    text = net("x", "def loss(model, x):\n    return Output(model(x))\n\n\n" + BUILD)
    assert REGISTERED not in rewrite(text).text


OUTPUTS = """\
import dataclasses

from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Output:
    logits: Tensor
"""
TRAIN = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from net import Net

model = FSDP(Net())
"""


def test_class_of_another_file() -> None:
    imports = "from torch import nn\n\nfrom outputs import Output\n\n\n"
    files = {"outputs.py": OUTPUTS, "net.py": imports + NET.format(returned="Output(x)"), "train.py": TRAIN}
    result = rewrite_files(files)
    assert result.after["outputs.py"].endswith(f"{REGISTERED}  # where fully_shard of torch < 2.12 looks for tensors\n")
    assert "import torch\n" in result.after["outputs.py"]
    assert {(f.rule, f.level) for f in result.findings} == {("FM101", Level.REWRITTEN), ("FM456", Level.REWRITTEN)}
