"""Around the wrap: a program and its rewrite have the same losses, and train the same parameters to the same values."""

from __future__ import annotations

from typing import Any

import pytest

from codemods.api import Level

from ..helpers import Result, rewrite_all
from ..support.launch import run
from .around_rows import ROWS
from .programs import folder_of, models_of, write

WITHOUT_GRADIENTS = {
    "ranks that use different parameters",  # the program itself says so: find_unused_parameters
    "layers that batches pick, of the root and units",
    "a layer that some batches use",
    "a layer that all batches use",
    "a layer that trains nowhere, detached",
    "a layer that trains nowhere, blind",
}


@pytest.fixture(scope="module")
def rewritten() -> dict[str, Result]:
    return rewrite_all({name: {"train.py": text, "models.py": models_of(text)} for name, text in ROWS.items()})


@pytest.fixture(scope="module")
def observed(rewritten: dict[str, Result], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank saw, by folder."""
    root = tmp_path_factory.mktemp("around")
    for name, result in rewritten.items():
        write(result, root / folder_of(name))
    return run("run_around", [2], root, "tests.parity")[2]


@pytest.mark.parametrize("name", ROWS)
def test_is_rewritten(name: str, rewritten: dict[str, Result]) -> None:
    result = rewritten[name]
    assert "FullyShardedDataParallel" not in result.after["train.py"]
    newest = [f.level for f in result.findings if "only torch 2.13" in f.message]
    assert newest == ([Level.REVIEW] if name in WITHOUT_GRADIENTS else [])
    assert [f for f in result.findings if f.level is Level.MANUAL] == []


@pytest.mark.dist
@pytest.mark.parametrize("name", ROWS)
def test_trains_as_before(name: str, observed: list[dict[str, Any]]) -> None:
    for results in observed:
        result = results[folder_of(name)]
        assert "error" not in result, result["error"]
        before, after = result["before"], result["after"]
        assert after["units"] == before["units"]
        assert after["losses"] == pytest.approx(before["losses"], rel=1e-5)
        assert before["moved"], "nothing is trained"
        assert after["moved"] == before["moved"]
        assert result["distance"] <= 1e-4


def test_folders_are_distinct() -> None:
    assert len({folder_of(name) for name in ROWS}) == len(ROWS)
