"""LOCAL_STATE_DICT and an optimizer's file for each rank: FSDP1 saves, and the rewritten program goes on from it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from codemods.api import Level
from fsdp_migrate.pipeline import Options

from ..helpers import SUPPORT, rewrite_all
from ..support.launch import run
from .local import PROGRAMS

pytest.importorskip("torch")

WORLDS = (2, 4)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    """What each rank saw, by the number of processes."""
    folder = tmp_path_factory.mktemp("local")
    shutil.copy(Path(__file__).with_name("net.py"), folder)
    programs = {name: {"program.py": text} for name, text in PROGRAMS.items()}
    for name, result in rewrite_all(programs, dict.fromkeys(programs, Options(read_fsdp1_files=True))).items():
        assert Level.MANUAL not in {finding.level for finding in result.findings}
        for side, files in (("before", result.before), ("after", result.after)):
            (folder / side / name).mkdir(parents=True)
            for path, written in files.items():
                (folder / side / name / path).write_text(written)
        if not (folder / "after" / name / SUPPORT).exists():
            assert result.own
    return run("run_local", WORLDS, folder, "tests.checkpoints")


@pytest.mark.dist
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("use_orig_params", PROGRAMS)
def test_goes_on_from_what_each_rank_of_fsdp1_saved(
    use_orig_params: str, world: int, seen: dict[int, list[dict[str, Any]]]
) -> None:
    for rank in seen[world]:
        result = rank[use_orig_params]
        assert "error" not in result, result["error"]
        assert result["rest"] == pytest.approx(result["whole"], abs=1e-5)
        assert result["own whole"] == pytest.approx(result["whole"], abs=1e-5)
        assert result["own rest"] == pytest.approx(result["own whole"], abs=1e-5)
