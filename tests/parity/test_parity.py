"""Every argument of FSDP1's constructor: the program and its rewrite make the same units, talk and train the same."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from codemods.tables.versions import SINCE, exists
from fsdp_migrate.pipeline import Options

from ..helpers import Result, rewrite_all
from ..support.launch import by_case, run
from .programs import models_of, write
from .rows import ROWS, Row

NOT_FREED = "reshard_after_forward"
PARTS = 4
"""Of the rows: those of four ranks make hundreds of groups."""


@pytest.fixture(scope="module")
def rewritten() -> dict[str, Result]:
    programs = {row.name: {"train.py": row.program, "models.py": models_of(row.program)} for row in ROWS}
    return rewrite_all(programs, {row.name: Options(torch_version=row.torch_version) for row in ROWS})


@pytest.fixture(scope="module")
def observed(rewritten: dict[str, Result], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What each rank saw, by row."""
    folder = tmp_path_factory.mktemp("rows")
    for row in ROWS:
        write(rewritten[row.name], folder / row.folder)
    return by_case(run("run_rows", sorted({row.world for row in ROWS}), folder, "tests.parity", PARTS))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_is_rewritten_the_expected_way(row: Row, rewritten: dict[str, Result]) -> None:
    result = rewritten[row.name]
    assert "FullyShardedDataParallel" not in result.after["train.py"]
    assert ("shard_model" in result.support) == (row.way == "support")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_needs_no_newer_torch(row: Row, rewritten: dict[str, Result]) -> None:
    for text in rewritten[row.name].after.values():
        nodes = list(ast.walk(ast.parse(text)))
        names = {name for node in nodes for name in (getattr(node, key, None) for key in ("id", "attr", "arg"))}
        newer = {name for name in names & SINCE.keys() if not exists(name, row.torch_version)}
        newer -= {node.value for node in nodes if isinstance(node, ast.Constant)}  # what hasattr asks for first
        assert not newer - {"ignored_params"}, "our own functions have arguments of this name"
        given = {argument.arg or "" for argument in calls_of(nodes, "fully_shard")}
        assert {name for name in given & SINCE.keys() if not exists(name, row.torch_version)} == set()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_root_keeps_its_parameters_gathered_unless_told_otherwise(row: Row, rewritten: dict[str, Result]) -> None:
    """An explicit True frees the root after forward since torch 2.8; None is an error before it."""
    text = rewritten[row.name].after["train.py"]
    nodes = list(ast.walk(ast.parse(text)))
    given = {ast.unparse(a.value).rsplit(".")[-1] for a in calls_of(nodes, "fully_shard") if a.arg == NOT_FREED}
    fields = [node for node in nodes if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == NOT_FREED]
    assert given <= ({NOT_FREED} if fields else {"False"})
    assert {ast.unparse(field.value or field) for field in fields} <= {"False"}


def calls_of(nodes: list[ast.AST], name: str) -> list[ast.keyword]:
    """The arguments of the calls of a function."""
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == name]
    return [keyword for call in calls for keyword in call.keywords]


@pytest.mark.dist
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_trains_as_before(row: Row, observed: dict[str, list[dict[str, Any]]]) -> None:
    assert row.name in observed, "an earlier row failed on some ranks only"
    for result in observed[row.name]:
        assert "error" not in result, result["error"]
        old, new = result["old"], result["new"]
        assert new["units"] == old["units"]
        if row.world > 1:  # FSDP1 reduces over one rank too, FSDP2 does not
            assert new["collectives"] == old["collectives"]
        assert new["losses"] == pytest.approx(old["losses"], rel=row.rel)
        assert new["tensors"] == old["tensors"], "names or dtypes of parameters, buffers and the output"
        assert result["distance"] <= 1e-4, "of parameters and buffers, after training"


def test_rows_have_names_of_their_own() -> None:
    assert len({row.folder for row in ROWS}) == len(ROWS)
