"""Nothing of the user's is imported or run, whatever lies beside the program that is read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALARM = "import pathlib\npathlib.Path(__file__).with_name('executed').write_text(__name__)\n"
FSDP1 = (
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\ndef f(model):\n    return FSDP(model)\n"
)
ON_IMPORT = {
    "raises": "raise RuntimeError('imported')\n",
    "exits": "import sys\n\nsys.exit(3)\n",
    "lacks": "import a_module_that_nobody_has\n",
    "writes": ALARM,
    "spawns": "import os\n\nos.system('touch executed')\n",
}
SHADOWS = (
    "json", "ast", "difflib", "dataclasses", "subprocess", "torch", "libcst", "typer", "rich", "pathspec", "codemods",
    "conftest", "sitecustomize", "usercustomize", "setup",
)  # fmt: skip
CONSOLE = "import sys\nfrom fsdp_migrate.cli import main\n\nsys.exit(main())\n"
STARTS = ["console script", "python -m"]


def hostile(folder: Path) -> Path:
    """A program that sounds an alarm when any file is imported, next to files named as this tool's own imports."""
    folder.mkdir()
    for name, text in ON_IMPORT.items():
        (folder / f"{name}.py").write_text(text + FSDP1)
    for name in SHADOWS:
        (folder / f"{name}.py").write_text(ALARM)
    lines = [f"import {name}" for name in (*ON_IMPORT, *SHADOWS)]
    (folder / "train.py").write_text("\n".join([*lines, ALARM, FSDP1]))
    return folder


def run(start: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = folder.with_name("fsdp-migrate")
    script.write_text(CONSOLE)
    command = [str(script)] if start == "console script" else ["-m", "fsdp_migrate"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *command, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.mark.parametrize("start", STARTS)
def test_what_acts_on_import_is_rewritten_and_not_imported(tmp_path: Path, start: str) -> None:
    folder = hostile(tmp_path / "program")
    done = run(start, folder, "rewrite", "train.py")
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("train", *ON_IMPORT):
        assert "fully_shard(model)" in (folder / f"{name}.py").read_text()
    assert not (folder / "executed").exists()


@pytest.mark.parametrize("start", STARTS)
def test_the_lint_gate_imports_nothing_either(tmp_path: Path, start: str) -> None:
    folder = hostile(tmp_path / "program")
    done = run(start, folder, "check", ".")
    assert (done.returncode, done.stderr) == (1, "")
    assert not (folder / "executed").exists()


@pytest.mark.parametrize("command", ["rewrite", "check"])
def test_nothing_of_the_program_is_loaded(tmp_path: Path, command: str) -> None:
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "model_of_mine.py").write_text("import torch\n\n" + FSDP1)
    (folder / "train.py").write_text("import model_of_mine\n\n" + FSDP1)
    script = f"""
import sys
from fsdp_migrate.cli import app
try:
    app([{command!r}, "."])
finally:
    print("LOADED", *sorted({{"torch", "model_of_mine", "train"}} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1] == "LOADED"
