"""The walk of ARCHITECTURE.md is the one that a run takes: each station once, in the order in which it is told."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

import pytest

from fsdp_migrate.cli import app

ROOT = Path(__file__).parent.parent
STATION = re.compile(r"^\| \d+ \| `([^`]+)` \| `(\w+)` \|", re.MULTILINE)
PROGRAM = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main(net):
    return FSDP(net)
"""


def test_a_rewrite_passes_each_station_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stations = STATION.findall((ROOT / "ARCHITECTURE.md").read_text())
    assert 8 <= len(stations) <= 12
    assert len({file for file, _ in stations}) == len(stations)
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    wanted = {(str(ROOT / file), function) for file, function in stations}
    passed: list[tuple[str, str]] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        here = (frame.f_code.co_filename, frame.f_code.co_name)
        if event == "call" and here in wanted:
            passed.append(here)

    sys.setprofile(watch)
    try:
        with pytest.raises(SystemExit):
            app(["rewrite", "train.py"])
    finally:
        sys.setprofile(None)
    assert "fully_shard" in (tmp_path / "train.py").read_text()
    assert [(str(Path(file).relative_to(ROOT)), function) for file, function in passed] == stations
