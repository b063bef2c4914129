"""The functions for the training loop and for checkpoints, against FSDP1 on gloo."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fsdp_migrate.support import available, compose, everything

from .launch import by_case, run

pytest.importorskip("torch")

pytestmark = pytest.mark.dist

SCRIPT = Path(__file__).with_name("run_functions.py").read_text(encoding="utf-8")
CHECKS = re.findall(r"^@check\(.*\)\ndef (\w+)", SCRIPT, re.MULTILINE)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What each rank saw, by check."""
    folder = tmp_path_factory.mktemp("functions")
    (folder / "fsdp2_support.py").write_text(compose(everything(available())), encoding="utf-8")
    return by_case(run("run_functions", (2, 4), folder))


@pytest.mark.parametrize("name", CHECKS)
def test_function(name: str, results: dict[str, list[Any]]) -> None:
    assert name in results, "an earlier check failed on some ranks only"
    for error in results[name]:
        assert error is None, error["error"]
