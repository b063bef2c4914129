"""The instrument over real programs counts what is there, by a scan of its own."""

from __future__ import annotations

from pathlib import Path

from .measure import Row, measure
from .scan import uses
from .table import compare, render

HEAD = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType, fully_shard\n\n\n"
FILES = {
    "train.py": "def main(net):\n    return FSDP(net)\n",
    "late.py": "import torch\n\n\ndef main(net):\n    torch.optim.SGD(net.parameters())\n    return FSDP(net)\n",
    "tests/test_train.py": "def test():\n    FSDP(1)\n",
}
BESIDE = "def main(net, v2):\n    if v2:\n        return fully_shard(net)\n    return FSDP(net)\n"


def measured(folder: Path, files: dict[str, str]) -> Row:
    (folder / ".git").mkdir()
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(HEAD + text)
    return measure(folder)


def test_calls_are_counted_outside_of_tests(tmp_path: Path) -> None:
    row = measured(tmp_path, FILES)
    assert (row.exit, row.calls, row.rewritten, row.beside) == (1, 2, 1, 0)
    assert sum(row.manual.values()) == 1
    assert row.faults == []


def test_calls_of_a_kept_path_are_told_apart(tmp_path: Path) -> None:
    row = measured(tmp_path, {"shard.py": BESIDE, "alone.py": FILES["train.py"]})
    assert (row.calls, row.rewritten, row.beside) == (2, 1, 1)


def test_scan_knows_a_use_from_an_import() -> None:
    found = [(use.name, use.wraps) for use in uses(HEAD + "FSDP(1)\nFSDP.x(StateDictType)\nfully_shard(1)\n")]
    assert sorted(found) == [
        ("FullyShardedDataParallel", False),
        ("FullyShardedDataParallel", True),
        ("StateDictType", False),
    ]


def test_what_got_better_and_worse_is_told() -> None:
    old = {"a/b": Row(1, 1, rewritten=1, shard_model=1, support=[600], manual={"FM301": 2}), "c/d": Row(0, 0)}
    new = {"a/b": Row(0, 0, rewritten=1, support=[], manual={}, faults=["x"])}
    assert compare(old, new) == [
        "WORSE  a/b: faults 0 -> 1",
        "WORSE  c/d: no longer measured",
        "better a/b: shard_model 1 -> 0",
        "better a/b: support lines 600 -> 0",
        "better a/b: manual 2 -> 0",
    ]
    assert "* a/b: x" in render(new)
