"""What a run imports, and how long it takes to start."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = """
import sys
from fsdp_migrate.cli import app
try:
    app({arguments!r})
except SystemExit as end:
    code = end.code
print("CODE", code, "LOADED", *sorted(set(sys.modules) & {{"torch", "numpy", "libcst", "rich", "pathspec", "asyncio"}}))
"""
FSDP1 = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\ndef f(m):\n    return FSDP(m)\n"


def loaded(folder: Path, *arguments: str) -> str:
    """The last line that a run prints: its exit code, and the heavy modules it imported."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(arguments=list(arguments))],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("arguments", [("--help",), ("rewrite", "--help"), ("--version",)])
def test_help_imports_nothing_heavy(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert loaded(tmp_path, *arguments) == "CODE 0 LOADED"


@pytest.mark.parametrize("command", ["rewrite", "check"])
def test_a_tree_without_fsdp_is_answered_without_libcst(tmp_path: Path, command: str) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    assert loaded(tmp_path, command, ".") == "CODE 0 LOADED"


@pytest.mark.parametrize(("command", "code"), [("rewrite", 0), ("check", 1)])
def test_torch_is_never_imported(tmp_path: Path, command: str, code: int) -> None:
    (tmp_path / "train.py").write_text(FSDP1)
    line = loaded(tmp_path, command, "train.py")
    assert line.startswith(f"CODE {code} ")
    assert "libcst" in line
    assert "torch" not in line
    assert "numpy" not in line


def test_help_is_at_most_ten_bare_interpreters(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def seconds(*arguments: str) -> float:
        """Processor time, the least of some runs: other work on the machine must not count."""
        times = []
        for _ in range(7):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(times)

    assert seconds("-m", "fsdp_migrate", "--help") <= 10 * seconds("-c", "pass")
