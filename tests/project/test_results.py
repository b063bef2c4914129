"""What `check` found is said again only as long as it would be found again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fsdp_migrate.cli import app
from fsdp_migrate.commands import lint

MODEL = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\ndef f(m):\n    return FSDP(m)\n"
TRAIN = "import torch\n\nfrom model import f\n\nnet = f(torch.nn.Linear(2, 2))\n"
Check = Callable[..., tuple[str, int]]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Run `check` in a program of two files: what it printed, and how often it looked at the sources (0 or 1)."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = tmp_path / "program"
    program.mkdir()
    (program / "pyproject.toml").write_text("")
    (program / "model.py").write_text(MODEL)
    (program / "train.py").write_text(TRAIN)
    monkeypatch.chdir(program)
    looked: list[object] = []
    look = lint._look
    monkeypatch.setattr(lint, "_look", lambda *given: (looked.append(given), look(*given))[1])

    def run(*arguments: str) -> tuple[str, int]:
        looked.clear()
        found = CliRunner().invoke(app, ["check", *(arguments or ["."])])
        assert found.exit_code in {0, 1, 2}
        return found.output, len(looked)

    return run


@pytest.mark.parametrize("path", [".", "train.py"])
def test_the_same_question_is_answered_once(check: Check, path: str) -> None:
    first, looked = check(path)
    assert looked == 1
    assert "FM101" in first
    assert check(path) == (first, 0)


@pytest.mark.parametrize("path", [".", "train.py"])
def test_an_edited_file_is_looked_at_again(check: Check, path: str) -> None:
    check(path)
    status = os.stat("model.py")
    Path("model.py").write_text(MODEL.replace("FSDP(m)", "FSDP(n)"))
    os.utime("model.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert check(path)[1] == 1


def test_an_added_file_is_looked_at_too(check: Check) -> None:
    check()
    Path("more.py").write_text(MODEL)
    again, looked = check()
    assert looked == 1
    assert "more.py" in again


def test_an_added_module_that_an_import_leads_to_now_counts(check: Check) -> None:
    Path("train.py").write_text("import added\n" + TRAIN)
    check("train.py")
    Path("added.py").write_text(MODEL)
    again, looked = check("train.py")
    assert looked == 1
    assert "added.py" in again


def test_a_removed_file_is_not_spoken_of(check: Check) -> None:
    check("train.py")
    Path("model.py").unlink()
    again, _ = check("train.py")
    assert "model.py" not in again


@pytest.mark.parametrize("option", [["--ignore", "FM101"], ["--output-format", "json"], ["--strict"], ["--quiet"]])
def test_another_option_is_another_question(check: Check, option: list[str]) -> None:
    check()
    assert check(".", *option)[1] == 1
    assert check()[1] == 0


def test_the_configuration_is_part_of_the_question(check: Check) -> None:
    check()
    Path("pyproject.toml").write_text('[tool.fsdp-migrate]\nignore = ["FM101"]\n')
    again, looked = check()
    assert looked == 1
    assert "FM101" not in again


def test_the_tool_is_part_of_the_question(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    check()
    monkeypatch.setattr("fsdp_migrate.project.results.tool", lambda: ["another"])
    assert check()[1] == 1


def test_no_cache_keeps_nothing_and_reads_nothing(check: Check, tmp_path: Path) -> None:
    first = check(".", "--no-cache")
    assert not (tmp_path / "cache").exists()
    assert check(".", "--no-cache") == first


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"digest": 1}', b"\xff\0", b"{}" * 10])
def test_a_broken_entry_is_as_good_as_none(check: Check, tmp_path: Path, content: bytes) -> None:
    first, _ = check()
    entries = list((tmp_path / "cache" / "fsdp-migrate").iterdir())
    assert len(entries) == 1
    entries[0].write_bytes(content)
    assert check() == (first, 1)
    assert check() == (first, 0)


def test_a_cache_that_cannot_be_written_changes_nothing(check: Check, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in the place of the folder")
    first, looked = check()
    assert looked == 1
    assert check() == (first, 1)


def test_runs_beside_each_other_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MODEL)
    command = [sys.executable, "-m", "fsdp_migrate", "check", "."]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": root}
    started = [
        subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    said = {each.communicate() for each in started}
    assert len(said) == 1
    assert {path.suffix for path in (tmp_path / "cache" / "fsdp-migrate").iterdir()} == {".json"}


def test_no_more_than_so_many_entries_are_kept(check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsdp_migrate.project.results.MOST", 2)
    for number in range(4):
        check(".", "--ignore", f"FM{number + 1}")
    assert len(list((tmp_path / "cache" / "fsdp-migrate").iterdir())) == 2
