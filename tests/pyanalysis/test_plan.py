"""One plan, made once: what it decides follows from the sources, and is asked of nothing else."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest

from codemods.plan import NotPlanned, Plan
from codemods.rules.wrapping import wrap
from fsdp_migrate.fsdp1.library import LIBRARY
from fsdp_migrate.fsdp1.program_model import FileContext, ProgramModel
from fsdp_migrate.plan import make_plan
from fsdp_migrate.plan.context import PlannedModel
from fsdp_migrate.project.imports import resolve_module
from fsdp_migrate.pyanalysis.program import Program

from ..helpers import code, rewrite

SWITCHED = """
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.fsdp.wrap import enable_wrap, wrap


    def shard(model, config):
        if config.strategy == "fsdp2":
            for block in model.blocks:
                fully_shard(block)
            return fully_shard(model)
        {}
        return model
    """
ENABLE_WRAP = """with enable_wrap(wrapper_cls=FSDP, use_orig_params=True):
            model.head = wrap(model.head)
            model = wrap(model)"""
CONSTRUCTOR = """model.head = FSDP(model.head, use_orig_params=True)
        model = FSDP(model, use_orig_params=True)"""


@pytest.mark.parametrize("wrapping", [ENABLE_WRAP, CONSTRUCTOR], ids=["enable_wrap", "FSDP"])
def test_a_path_beside_fsdp2_is_kept_however_it_wraps(wrapping: str) -> None:
    text = code(SWITCHED.format(wrapping))
    result = rewrite(text)
    assert result.text == text
    assert {finding.level.value for finding in result.findings} == {"kept"}


PROGRAM = """
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


    def main(net):
        optimizer = torch.optim.AdamW(net.parameters())
        model = FSDP(net, use_orig_params=True)
        print(model)
        return model, optimizer
    """


def planned(text: str) -> tuple[FileContext, Plan]:
    path = Path("train.py")
    model = ProgramModel(Program({path: code(text)}, lambda *_: resolve_module(path, None, 0, ()), LIBRARY))
    plan = make_plan(model, {path: ()})
    tree = model.program.tree(path)
    assert tree is not None
    return PlannedModel(model, plan).file(tree), plan


def test_the_emission_of_a_call_that_wraps_nothing_is_not_known() -> None:
    file, plan = planned(PROGRAM)
    for call in file.nodes(cst.Call):
        if file.code(call.func) == "FSDP":
            assert plan.emission(call).value == "native"
        else:
            with pytest.raises(NotPlanned):
                plan.emission(call)


def test_the_analysis_has_no_decisions() -> None:
    assert not {"emission", "plan", "is_kept", "switch", "is_sharded"} & set(dir(FileContext))


def test_a_plan_cannot_be_changed() -> None:
    _, plan = planned(PROGRAM)
    with pytest.raises(AttributeError):
        plan.sharded = frozenset()  # type: ignore[misc]


@pytest.mark.parametrize("argument", ["use_orig_params=True", "sharding_strategy=strategy", "**options"])
def test_a_draft_is_made_once(argument: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    draft = wrap.draft

    def counted(*arguments: object, **named: object) -> object:
        made.append(arguments)
        return draft(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(wrap, "draft", counted)
    rewrite_once(code(PROGRAM).replace("use_orig_params=True", argument))
    assert len(made) == 1


def rewrite_once(text: str) -> None:
    from fsdp_migrate.pipeline import Options, migrate
    from fsdp_migrate.project.source import Source

    path = Path("train.py")
    source = Source(path, text, encoding="utf-8")
    migrate((source,), Options(), {path: ()})
