"""FSDP1 and the composed support module, side by side on gloo: the same units, collectives, losses and values."""

from __future__ import annotations

from typing import Any

import pytest

from fsdp_migrate.support import available, compose, everything

from .launch import by_case, run

pytest.importorskip("torch")

from .cases import CASES

pytestmark = pytest.mark.dist


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What each rank saw, by case."""
    folder = tmp_path_factory.mktemp("cases")
    (folder / "fsdp2_support.py").write_text(compose(everything(available())), encoding="utf-8")
    return by_case(run("run_parity", sorted({case.world for case in CASES}), folder))


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_trains_as_fsdp1_did(name: str, results: dict[str, list[dict[str, Any]]]) -> None:
    assert name in results, "an earlier case failed on some ranks only"
    for result in results[name]:
        assert "error" not in result, result["error"]
        old, new = result["old"], result["new"]
        assert new["units"] == old["units"]
        assert new["collectives"] == old["collectives"]
        assert new["losses"] == pytest.approx(old["losses"], rel=1e-6)
        assert new["tensors"] == old["tensors"], "names or dtypes of parameters and buffers"
        assert result["distance"] <= 1e-4, "of parameters and buffers, after training"


def test_cases_have_names_of_their_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
