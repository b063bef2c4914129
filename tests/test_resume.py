"""A program that is migrated while it trains goes on from its FSDP1 checkpoint as it would have gone on itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from codemods.vocabulary import Level
from fsdp_migrate.engine import Options, migrate
from fsdp_migrate.project.imports import program_files
from fsdp_migrate.project.source import read_source

pytest.importorskip("torch")

FIXTURE = Path(__file__).parent.parent / "fixtures" / "resumable_trainer" / "fsdp1"
LINE = re.compile(r"^(step|eval) (\d+) loss (\S+)", re.MULTILINE)


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rewritten fixture, which needed nobody."""
    folder = tmp_path_factory.mktemp("migrated") / "program"
    shutil.copytree(FIXTURE, folder)
    report = migrate([read_source(path) for path in program_files([folder / "train.py"])], Options())
    assert report.changes
    assert Level.MANUAL not in {finding.level for finding in report.findings}
    for change in report.changes:
        change.path.write_text(change.after)
    return folder


def losses(program: Path, world: int, *arguments: str) -> dict[tuple[str, int], float]:
    """What a run prints, by kind and step. gloo can abort at exit when all is done: then the run counts."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
    done = subprocess.run(
        [*command, str(program / "train.py"), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    found = {(kind, int(step)): float(loss) for kind, step, loss in LINE.findall(done.stdout)}
    assert ("step", 20) in found, done.stderr[-3000:]
    return found


@pytest.mark.dist
@pytest.mark.parametrize("world", [2, 4])
def test_goes_on_from_the_checkpoint_of_fsdp1(world: int, migrated: Path, tmp_path: Path) -> None:
    whole = losses(FIXTURE, world, "--output", str(tmp_path))
    rest = losses(migrated, world, "--output", str(tmp_path / "new"), "--resume", str(tmp_path / "step10.pt"))
    assert rest == pytest.approx({key: loss for key, loss in whole.items() if key[1] > 10}, abs=1e-5)
    assert len(rest) == 13
