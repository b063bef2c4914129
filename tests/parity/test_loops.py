"""Every way to accumulate, clip and summon: the program and its rewrite see the same numbers, or the rewrite raises."""

from __future__ import annotations

from textwrap import indent
from typing import Any

import pytest

from codemods.api import Level
from codemods.leftover import is_about_data
from codemods.tables.names import FSDP2

from ..helpers import FSDP1, Result, rewrite_all
from ..support.launch import by_case, run

pytest.importorskip("torch")

from .leftovers import ATTRIBUTES, FUNCTIONS, MODULES, OVERRIDDEN, PROGRAM, STATEMENTS, WRAPPERS
from .loops import LOOPS, Loop
from .programs import models_of, write

PROGRAMS = {"leftovers": PROGRAM} | {loop.folder: loop.program for loop in LOOPS}


@pytest.fixture(scope="module")
def rewritten() -> dict[str, Result]:
    return rewrite_all({name: {"train.py": text, "models.py": models_of(text)} for name, text in PROGRAMS.items()})


@pytest.fixture(scope="module")
def seen(rewritten: dict[str, Result], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What each rank saw, by loop, and by function of what could be left over."""
    folder = tmp_path_factory.mktemp("loops")
    for name, result in rewritten.items():
        write(result, folder / name)
    for loop in LOOPS:
        (folder / loop.folder / "unsharded.py").write_text(loop.unsharded)
    return by_case(run("run_loops", [2], folder, "tests.parity"))


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.name)
def test_is_rewritten_and_found(loop: Loop, rewritten: dict[str, Result]) -> None:
    result = rewritten[loop.folder]
    assert "FullyShardedDataParallel" not in result.after["train.py"]
    about_models = [finding for finding in result.findings if not is_about_data(finding)]
    assert {finding.level.value for finding in about_models} == loop.levels, result.findings


@pytest.mark.dist
@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.name)
def test_sees_what_it_saw_before(loop: Loop, seen: dict[str, list[dict[str, Any]]]) -> None:
    assert loop.name in seen, "an earlier loop failed on some ranks only"
    for result in seen[loop.name]:
        assert "error" not in result, result["error"]
        assert flat(result["before"])
        expected = [
            pytest.approx(value, rel=loop.rel, abs=1e-7) if isinstance(value, float) else value
            for value in flat(result["unsharded" if loop.is_stale else "before"])
        ]
        assert flat(result["after"]) == expected
        assert (flat(result["before"]) != expected) is loop.is_stale


@pytest.mark.dist
@pytest.mark.parametrize(("function", "statement"), list(zip(FUNCTIONS, STATEMENTS, strict=True)), ids=STATEMENTS)
def test_what_is_left_over_raises(
    function: str, statement: str, rewritten: dict[str, Result], seen: dict[str, Any]
) -> None:
    """Nothing that needs a person goes on without a word."""
    result = rewritten["leftovers"]
    start = PROGRAM[: PROGRAM.index(f"def {function}(")].count("\n") + 1
    lines = range(start, start + FUNCTIONS[function].count("\n") + 1)
    left = any(finding.level is Level.MANUAL and finding.line in lines for finding in result.findings)
    by_name = result.after["train.py"].split(f"def {function}(")[1].split("def ")[0].split("build()\n", 1)[1]
    assert left or indent(statement, "    ").strip() != by_name.strip(), "neither rewritten nor found"
    for rank in seen[function]:
        assert rank["raised"] or not left


def test_every_name_of_the_wrapper_is_tried() -> None:
    from torch import nn
    from torch.distributed.fsdp import FullyShardedDataParallel

    assert {*WRAPPERS.split(), "module", "__getitem__"} >= set(dir(FullyShardedDataParallel)) - set(dir(nn.Module))
    own = {name for name in vars(FullyShardedDataParallel).keys() & set(dir(nn.Module)) if not name.startswith("__")}
    assert own == OVERRIDDEN


@pytest.mark.dist
def test_every_attribute_of_a_wrapped_model_is_tried(seen: dict[str, list[dict[str, Any]]]) -> None:
    for rank in seen["attributes"]:
        assert set(rank["names"]) == set(ATTRIBUTES.split())


def test_every_private_module_is_tried() -> None:
    import pkgutil

    import torch.distributed.fsdp

    modules = {module.name for module in pkgutil.iter_modules(torch.distributed.fsdp.__path__)}
    public = {"api", "fully_sharded_data_parallel", "sharded_grad_scaler", "wrap"}
    assert modules - public - {"_fully_shard"} == set(MODULES.split())


def test_every_public_name_is_known() -> None:
    """Each is FSDP2's, or in the list of FSDP1's that the tests look for in everything that is rewritten."""
    import importlib

    names = ["", ".api", ".fully_sharded_data_parallel", ".wrap", ".sharded_grad_scaler"]
    places = [importlib.import_module(f"torch.distributed.fsdp{name}") for name in names]
    exported = {name for place in places for name in getattr(place, "__all__", vars(place)) if name[0] != "_"}
    own = {
        name
        for name in exported
        for place in places
        if getattr(getattr(place, name, None), "__module__", "").startswith("torch.distributed.fsdp")
    }
    assert own <= FSDP1 | FSDP2
    assert [name for name in FSDP1 if not any(hasattr(place, name) for place in places)] == []


def flat(values: Any) -> list[Any]:
    """What was seen, without the lists."""
    return [inner for value in values for inner in flat(value)] if isinstance(values, list) else [values]


def test_loops_have_names_of_their_own() -> None:
    assert len({loop.folder for loop in LOOPS}) == len(LOOPS)
