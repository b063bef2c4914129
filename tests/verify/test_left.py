"""A rewritten program that stops where something is left to a person says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from codemods.api import Finding, Level
from fsdp_migrate.commands.parity import left_there
from fsdp_migrate.config import Config
from fsdp_migrate.render.view import Command
from fsdp_migrate.session import examine, gather

ROOT = Path("/home/me/project")
TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 9, in <module>
    main()
  File "/tmp/x/rewritten/scratch/lib/save.py", line 30, in save
    state = FSDP.optim_state_dict_to_load(model, optim, state)
  File "/site-packages/torch/distributed/fsdp/fully_sharded_data_parallel.py", line 1970, in optim_state_dict_to_load
AttributeError: 'NoneType' object has no attribute 'state_dict_type'
"""


def found(path: str, line: int, level: Level = Level.MANUAL) -> Finding:
    return Finding("FM303", level, ROOT / path, line, 1, "optimizer state is loaded through FSDP1", "load it otherwise")


@pytest.mark.parametrize("line", [30, 29])
def test_the_innermost_place_that_was_left(line: int) -> None:
    mine = found("lib/save.py", line)
    assert left_there(TRACEBACK, [found("train.py", 9), mine], ROOT) == ("lib/save.py:30", mine)


@pytest.mark.parametrize(
    "finding",
    [
        found("lib/save.py", 31),
        found("lib/save.py", 12),
        found("other/save.py", 30),
        found("lib/save.py", 30, Level.REVIEW),
    ],
)
def test_what_was_left_elsewhere_is_not_the_cause(finding: Finding) -> None:
    assert left_there(TRACEBACK, [finding], ROOT) is None


def test_what_was_left_in_the_same_function(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    body = "".join(f"    x = {number}\n" for number in range(20))
    (tmp_path / "lib" / "save.py").write_text(f"def load():\n{body}def save():\n{body}")
    mine, others = (replace(found("", line), path=tmp_path / "lib" / "save.py") for line in (24, 12))
    assert left_there(TRACEBACK, [others, mine], tmp_path) == ("lib/save.py:24", mine)
    assert left_there(TRACEBACK, [others], tmp_path) is None


def test_what_is_told_once_is_known_in_each_of_its_lines(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\ndef main(net):\n"
        "    model = FSDP(net)\n    print(model.sharding_strategy)\n    return model.sharding_strategy\n"
    )
    program = gather([script], Config())
    told = [
        {f.line for f in examine(program, Config(), Command.REWRITE, tmp_path, once=once).report.findings}
        for once in (True, False)
    ]
    assert told == [{5, 6}, {5, 6, 7}]
