"""The script behind table.md counts what is there, by a scan of its own."""

from __future__ import annotations

from pathlib import Path

from .table import row, uses

HEAD = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType, fully_shard\n\n\n"
FILES = {
    "train.py": "def main(net):\n    return FSDP(net)\n",
    "late.py": "import torch\n\n\ndef main(net):\n    torch.optim.SGD(net.parameters())\n    return FSDP(net)\n",
    "tests/test_train.py": "def test():\n    FSDP(1)\n",
}
BESIDE = "def main(net, v2):\n    if v2:\n        return fully_shard(net)\n    return FSDP(net)\n"


def table(folder: Path, files: dict[str, str]) -> list[str]:
    (folder / ".git").mkdir()
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(HEAD + text)
    return [cell.strip() for cell in row(folder)[0].split("|")[1:-1]]


def test_calls_are_counted_outside_of_tests(tmp_path: Path) -> None:
    cells = table(tmp_path, FILES)
    assert cells[2:6] == ["2", "1", "0", "1"]
    assert cells[-2] == "none"


def test_calls_of_a_kept_path_are_told_apart(tmp_path: Path) -> None:
    cells = table(tmp_path, {"shard.py": BESIDE, "alone.py": FILES["train.py"]})
    assert cells[2:6] == ["2", "1", "1", "0"]


def test_scan_knows_a_use_from_an_import() -> None:
    found = [(use.name, use.wraps) for use in uses(HEAD + "FSDP(1)\nFSDP.x(StateDictType)\nfully_shard(1)\n")]
    assert sorted(found) == [
        ("FullyShardedDataParallel", False),
        ("FullyShardedDataParallel", True),
        ("StateDictType", False),
    ]
