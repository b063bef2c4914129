"""A program that is migrated while it trains goes on from its FSDP1 checkpoint as it would have gone on itself."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from codemods.api import Level
from fsdp_migrate.pipeline import Options, migrate
from fsdp_migrate.project.imports import program_files
from fsdp_migrate.project.source import read_source

from .forks import Job, run

pytest.importorskip("torch")

FIXTURE = Path(__file__).parent.parent / "fixtures" / "resumable_trainer" / "fsdp1"
WORLDS = (2, 4)
LINE = re.compile(r"^(step|eval) (\d+) loss (\S+)", re.MULTILINE)


def migrated(folder: Path) -> Path:
    """The rewritten fixture, which needed nobody."""
    shutil.copytree(FIXTURE, folder)
    report = migrate([read_source(path) for path in program_files([folder / "train.py"])], Options())
    assert report.changes
    assert Level.MANUAL not in {finding.level for finding in report.findings}
    for change in report.changes:
        change.path.write_text(change.after)
    return folder


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what each run printed: the whole of FSDP1, and then the rest with FSDP2."""
    folder = tmp_path_factory.mktemp("resume")
    program, jobs = migrated(folder / "program"), []
    for world in WORLDS:
        old, new = str(folder / f"old-{world}"), str(folder / f"new-{world}")
        whole = [str(FIXTURE / "train.py"), "--output", old]
        rest = [str(program / "train.py"), "--output", new, "--resume", f"{old}/step10.pt"]
        jobs += [Job(whole, str(folder), world, f"{old}.log", 180), Job(rest, str(folder), world, f"{new}.log", 180)]
    run(jobs)
    return folder


def losses(log: Path) -> dict[tuple[str, int], float]:
    """What a run printed, by kind and step."""
    found = {(kind, int(step)): float(loss) for kind, step, loss in LINE.findall(log.read_text())}
    assert ("step", 20) in found, log.read_text()[-3000:]
    return found


@pytest.mark.dist
@pytest.mark.parametrize("world", WORLDS)
def test_goes_on_from_the_checkpoint_of_fsdp1(world: int, printed: Path) -> None:
    whole, rest = losses(printed / f"old-{world}.log"), losses(printed / f"new-{world}.log")
    assert rest == pytest.approx({key: loss for key, loss in whole.items() if key[1] > 10}, abs=1e-5)
    assert len(rest) == 13
