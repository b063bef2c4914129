"""FM425 and FM415: classes whose objects `fully_shard` cannot give a class of their own."""

from __future__ import annotations

import pytest

from codemods.vocabulary import Level

from ..helpers import check_marked, check_noop, code, rewrite, rewrite_files

HEAD = """\
import abc
from abc import ABC
from typing import Generic, TypeVar

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

T = TypeVar("T")


class Mixin:
    pass


class Abstract(ABC):
    def size(self):
        return 1


"""


def test_noop() -> None:
    check_noop("from abc import ABC\nfrom torch import nn\n\n\nclass Net(ABC, nn.Module):\n    pass\n")


@pytest.mark.parametrize("bases", ["nn.Module, ABC", "Mixin, nn.Module", "Mixin, ABC, nn.Module", "ABC", "nn.Module"])
def test_right_order_stays(bases: str) -> None:
    result = rewrite(HEAD + f"class Net({bases}):\n    pass\n\n\ndef build():\n    return FSDP(Net())\n")
    assert f"class Net({bases}):" in result.text
    assert {finding.rule for finding in result.findings} == {"FM101"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ABC, nn.Module", "nn.Module, ABC"),
        ("abc.ABC, nn.Module", "nn.Module, abc.ABC"),
        ("Generic[T], nn.Module", "nn.Module, Generic[T]"),
        ("ABC, Generic[T], nn.Module", "nn.Module, ABC, Generic[T]"),
        ("ABC, Mixin, nn.Module", "Mixin, nn.Module, ABC"),
        ("ABC, nn.Sequential", "nn.Sequential, ABC"),
        ("ABC, nn.Module, metaclass=abc.ABCMeta", "nn.Module, ABC, metaclass=abc.ABCMeta"),
    ],
)
def test_base_without_methods_moves(before: str, after: str) -> None:
    result = rewrite(HEAD + f"class Net({before}):\n    pass\n\n\ndef build():\n    return FSDP(Net())\n")
    assert f"class Net({after}):" in result.text
    assert {(f.rule, f.level) for f in result.findings} == {("FM101", Level.REWRITTEN), ("FM425", Level.REWRITTEN)}


WRAPS = {
    "of a base": "class Wide(Net):\n    pass\n\n\ndef build():\n    return FSDP(Wide())\n",
    "in a policy": "def build(net):\n    return FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Net}))\n",
    "moved on the way": "def build(device):\n    net = Net().to(device)\n    net = FSDP(net)\n    return net\n",
}


@pytest.mark.parametrize("name", WRAPS)
def test_class_is_seen(name: str) -> None:
    assert (
        "class Net(nn.Module, ABC):" in rewrite(HEAD + "class Net(ABC, nn.Module):\n    pass\n\n\n" + WRAPS[name]).text
    )


def test_class_of_another_file() -> None:
    files = {
        "net.py": "from abc import ABC\n\nimport torch.nn as nn\n\n\nclass Net(ABC, nn.Module):\n    pass\n",
        "train.py": "from net import Net\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
        "model = FSDP(Net())\n",
    }
    result = rewrite_files(files)
    assert result.after["net.py"] == files["net.py"].replace("ABC, nn.Module", "nn.Module, ABC")


LEFT = {
    "not seen to be sharded": "class Net(ABC, nn.Module):\n    pass\n\n\ndef build(net):\n    return FSDP(net)\n",
    "a base with methods": "class Net(Abstract, nn.Module):\n    pass\n\n\ndef build():\n    return FSDP(Net())\n",
    "over several lines": code(
        """
        class Net(
            ABC,
            nn.Module,
        ):
            pass


        def build():
            return FSDP(Net())
        """
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_needs_a_person(name: str) -> None:
    check_marked(HEAD + LEFT[name], "FM415", Level.MANUAL)
