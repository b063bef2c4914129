"""FSDP1 by what a module of the program imports: a file that takes it from there has no word of torch's."""

from __future__ import annotations

import pytest

from ..helpers import code, rewrite_files

IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
TRAIN = code("""
    import torch

    from build import build

    model = build(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 4)).sum().backward()
    model.clip_grad_norm_(1.0)
    optimizer.step()
    """)
BUILD = "\n\n\ndef build(net):\n    return {}(net)\n"

WAYS = {
    "by the name": ({"own.py": IMPORT}, "from own import FSDP", "FSDP"),
    "under another name": ({"own.py": IMPORT}, "from own import FSDP as Sharded", "Sharded"),
    "by the module": ({"own.py": IMPORT}, "import own", "own.FSDP"),
    "with all that it has": ({"own.py": IMPORT}, "from own import *", "FSDP"),
    "with all that it has of torch's": (
        {"own.py": "from torch.distributed.fsdp import *\n"},
        "from own import *",
        "FullyShardedDataParallel",
    ),
    "of a package": (
        {"own/wrap.py": IMPORT, "own/__init__.py": "from .wrap import FSDP\n"},
        "from own import FSDP",
        "FSDP",
    ),
    "over two modules": (
        {"own.py": IMPORT, "between.py": "from own import FSDP as Wrapped\n"},
        "from between import Wrapped",
        "Wrapped",
    ),
    "given another name there": ({"own.py": IMPORT + "\nWrap = FSDP\n"}, "from own import Wrap", "Wrap"),
    "torch's module": (
        {"own.py": "import torch.distributed.fsdp as sharding\n"},
        "from own import sharding",
        "sharding.FullyShardedDataParallel",
    ),
    "where torch may have none": (
        {"own.py": f"try:\n    {IMPORT}except ImportError:\n    FSDP = None\n"},
        "from own import FSDP",
        "FSDP",
    ),
}


@pytest.mark.parametrize(("files", "line", "name"), WAYS.values(), ids=WAYS)
def test_wraps_by_a_name_of_a_module_of_its_own(files: dict[str, str], line: str, name: str) -> None:
    result = rewrite_files({"train.py": TRAIN, "build.py": line + BUILD.format(name), **files})
    assert "    return fully_shard(net)\n" in result.after["build.py"]
    assert "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)" in result.after["train.py"]


def test_settings_by_a_name_of_a_module_of_its_own() -> None:
    own = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy\n"
    conf = "from own import ShardingStrategy\n\nSTRATEGY = ShardingStrategy.SHARD_GRAD_OP\n"
    build = "from conf import STRATEGY\nfrom own import FSDP" + BUILD.format("FSDP").replace(
        "(net)\n", "(net, sharding_strategy=STRATEGY)\n"
    )
    result = rewrite_files({"train.py": TRAIN, "own.py": own, "conf.py": conf, "build.py": build})
    assert "    return fully_shard(net, reshard_after_forward=False)\n" in result.after["build.py"]
    assert "ShardingStrategy" in result.after["own.py"]


def test_another_name_in_the_same_words_is_left() -> None:
    files = {"own.py": IMPORT, "build.py": "from own import FSDP" + BUILD.format("FSDP"), "train.py": TRAIN}
    other = "class FSDP:\n    '''Not torch's.'''\n\n\ndef build(net):\n    return FSDP(net)\n"
    assert rewrite_files({**files, "other.py": other}).after["other.py"] == other
