"""FM415: classes whose objects `fully_shard` cannot give a class of their own."""

from __future__ import annotations

import pytest

from codemods.api import Level

from ..helpers import check_marked, check_noop, rewrite, rewrite_files

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
    "bases",
    [
        "ABC, nn.Module",
        "abc.ABC, nn.Module",
        "Generic[T], nn.Module",
        "ABC, Generic[T], nn.Module",
        "ABC, Mixin, nn.Module",
        "ABC, nn.Sequential",
        "ABC, nn.Module, metaclass=abc.ABCMeta",
        "Abstract, nn.Module",
        "\n    ABC,\n    nn.Module,\n",
    ],
)
def test_base_of_another_layout_needs_a_person(bases: str) -> None:
    text = f"class Net({bases}):\n    pass\n\n\ndef build():\n    return FSDP(Net())\n"
    check_marked(HEAD + text, "FM415", Level.MANUAL)


WRAPS = {
    "of a base": "class Wide(Net):\n    pass\n\n\ndef build():\n    return FSDP(Wide())\n",
    "in a policy": "def build(net):\n    return FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Net}))\n",
    "moved on the way": "def build(device):\n    net = Net().to(device)\n    net = FSDP(net)\n    return net\n",
}


@pytest.mark.parametrize("name", WRAPS)
def test_class_is_seen(name: str) -> None:
    check_marked(HEAD + "class Net(ABC, nn.Module):\n    pass\n\n\n" + WRAPS[name], "FM415", Level.MANUAL)


def test_class_of_another_file() -> None:
    files = {
        "net.py": "from abc import ABC\n\nimport torch.nn as nn\n\n\nclass Net(ABC, nn.Module):\n    pass\n",
        "train.py": "from net import Net\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
        "model = FSDP(Net())\n",
    }
    (found,) = [finding for finding in rewrite_files(files).findings if finding.rule == "FM415"]
    assert (found.level, found.path.name) == (Level.MANUAL, "net.py")
    assert "the module first" in found.hint


def test_class_that_is_not_seen_to_be_sharded_is_for_review() -> None:
    text = "class Net(ABC, nn.Module):\n    pass\n\n\ndef build(net):\n    return FSDP(net)\n"
    check_marked(HEAD + text, "FM415", Level.REVIEW)
