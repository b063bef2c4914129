"""Programs that save and resume, as they were and as the tool rewrote them, on 2 gloo processes, on 4 and on 1.

A row of `rows` is one way of FSDP1 to save and to load. The new program's file is the old one's, key by key; and each
program goes on from either file as the old one went on from its own, also on other than the 2 processes that saved it:
a migration can be taken back.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from codemods.api import Level
from fsdp_migrate.pipeline import Options

from ..helpers import SUPPORT, Result, rewrite_all
from ..support.launch import run
from .rows import ROWS, Row

pytest.importorskip("torch")

NAMES = [row.name for row in ROWS]


def write(folder: Path, row: Row, result: Result) -> None:
    """The row's program, and what the tool makes of it, each in a folder of its own."""
    name = f"{row.module}.py"
    reviewed = {finding.rule for finding in result.findings if finding.level is not Level.REWRITTEN}
    expected = row.reviewed or ("FM312" if row.checkpoint_format == "dcp" else "")
    assert reviewed == set(expected.split()), row.name
    # One call for model and optimizer together waits for ever where some ranks hold nothing.
    assert "set_state_dict(" not in result.text or "set_state_dict(" in row.program, row.name
    for side, text in (("before", row.program), ("after", result.text)):
        (folder / side / row.module).mkdir(parents=True)
        (folder / side / row.module / name).write_text(text)
    for path, text in result.after.items():
        if path.endswith(SUPPORT):
            (folder / "after" / row.module / SUPPORT).write_text(text)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    """What each rank saw, by the number of processes."""
    folder = tmp_path_factory.mktemp("checkpoints")
    shutil.copy(Path(__file__).with_name("net.py"), folder)
    programs = {row.name: {f"{row.module}.py": row.program} for row in ROWS}
    options = {row.name: Options(checkpoint_format=row.checkpoint_format) for row in ROWS}
    results = rewrite_all(programs, options)
    for row in ROWS:
        write(folder, row, results[row.name])
    return run("run_rows", (2, 4, 1), folder, "tests.checkpoints")


def of_row(name: str, world: int, seen: dict[int, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    assert name in seen[world][0], "an earlier row failed on some ranks only"
    for result in seen[world]:
        assert "error" not in result[name], result[name]["error"]
    return [result[name] for result in seen[world]]


@pytest.mark.dist
@pytest.mark.parametrize("name", NAMES)
def test_file_is_the_one_that_fsdp1_wrote(name: str, seen: dict[int, list[dict[str, Any]]]) -> None:
    from .files import compare

    row = ROWS[NAMES.index(name)]
    old, new = (
        [entry for entry in file if not row.left_out or row.left_out not in entry[0]]
        for file in of_row(name, 2, seen)[0]["files"]
    )
    assert old
    compare(old, new, row.keeps_order)


@pytest.mark.dist
@pytest.mark.parametrize("name", NAMES)
def test_saving_changes_nothing(name: str, seen: dict[int, list[dict[str, Any]]]) -> None:
    for result in of_row(name, 2, seen):
        (old, old_answer), (new, new_answer) = result["saving"]
        assert new == pytest.approx(old, rel=1e-6)
        assert new_answer == old_answer


@pytest.mark.dist
@pytest.mark.parametrize("file", ["old file", "new file", "way back"])
@pytest.mark.parametrize(
    ("name", "world"), [(row.name, world) for row in ROWS for world in (2, 4, 1) if world > 1 or row.one_rank]
)
def test_training_goes_on(name: str, world: int, file: str, seen: dict[int, list[dict[str, Any]]]) -> None:
    for result in of_row(name, world, seen):
        losses, answer = result["reference"]
        assert result[file][0] == pytest.approx(losses, rel=2e-6)
        assert result[file][1] == answer
