"""What FSDP2 refuses ends with an error after the rewrite; where FSDP1 trained, a finding says so before."""

from __future__ import annotations

from typing import Any

import pytest

from codemods.api import Level

from ..helpers import Result, rewrite_all
from ..support.launch import run
from .programs import folder_of, models_of, write
from .refused_rows import ROWS, TRAINS


@pytest.fixture(scope="module")
def rewritten() -> dict[str, Result]:
    return rewrite_all(
        {name: {"train.py": row.program, "models.py": models_of(row.program)} for name, row in ROWS.items()}
    )


@pytest.fixture(scope="module")
def ends(rewritten: dict[str, Result], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the programs ended with on each rank, by folder."""
    root = tmp_path_factory.mktemp("refused")
    for name, result in rewritten.items():
        write(result, root / folder_of(name))
    return run("run_refused", [2], root, "tests.parity")[2]


@pytest.mark.parametrize("name", ROWS)
def test_what_the_source_shows_is_reported(name: str, rewritten: dict[str, Result]) -> None:
    asking = {finding.rule for finding in rewritten[name].findings if finding.level is Level.MANUAL}
    assert asking == {ROWS[name].rule} - {""}


@pytest.mark.dist
@pytest.mark.parametrize("name", ROWS)
def test_ends_with_an_error(name: str, ends: list[dict[str, Any]]) -> None:
    row = ROWS[name]
    for results in ends:
        before, after = results[folder_of(name)]
        assert bool(before) == (row.fsdp1 != TRAINS)
        assert row.fsdp1 in before
        assert row.fsdp2 in after
