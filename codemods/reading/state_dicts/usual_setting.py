"""The kind of state dict that each model of a program is given where it is wrapped: `FSDP.set_state_dict_type`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import libcst as cst

from codemods.api import Context, NotStatic
from codemods.reading.code.enclosing import contains, enclosing
from codemods.reading.state_dicts.setting import READS, depends_on_setting
from codemods.reading.state_dicts.settings import Settings, settings
from codemods.tables.state_dicts import SET

_Place = tuple[Context, cst.Call]

_NAME = SET.rpartition(".")[2]
_CONSTANTS = frozenset({"False", "True"})
_DEPTH = 3
"""How many callers of what wraps are followed, and how deep the functions that run before the kind is set."""


def usual_settings(ctx: Context) -> Mapping[Path, Settings]:
    """What is set for every model that can come to a file, before any of its state is read; of most programs nothing.

    Sharded state dicts that FSDP1 moved to the CPU are none of FSDP2's own, and are left out.
    """
    sets = [
        (where, call) for where in ctx.files(_NAME) for call in where.nodes(cst.Call) if where.fsdp1(call.func) == SET
    ]
    reading = [where for where, _ in (*sets, *ctx.attributes(*READS))] if sets else []
    known: dict[cst.Call, bool] = {}
    found = {where.path: _usual(where, sets, known) for where in {each.path: each for each in reading}.values()}
    return {path: usual for path, usual in found.items() if usual is not None}


def _usual(ctx: Context, all_sets: Sequence[_Place], known: dict[cst.Call, bool]) -> Settings | None:
    """For one file; `known` is what is found out about the calls that wrap."""
    sets = [(where, call) for where, call in all_sets if _meet(where.path, ctx)]
    if any(where.fsdp1(function) != SET for where, function in ctx.attributes(_NAME) if _meet(where.path, ctx)):
        return None  # called on a model
    try:
        chosen = [settings(call, where) for where, call in sets]
    except NotStatic:
        return None
    wraps = ctx.wrapping.calls(ctx.path)
    if not chosen or not wraps or any(_said(each) != _said(chosen[0]) for each in chosen):
        return None
    first = replace(chosen[0], dead=())
    texts = {*first.config.values(), *first.optim_config.values()}
    if not texts <= _CONSTANTS or (not first.is_full and first.config["offload_to_cpu"] == "True"):
        return None
    known.update({call: _is_set_for(call, where, all_sets, _DEPTH) for where, call in wraps if call not in known})
    return first if all(known[call] for _, call in wraps) else None


def _meet(path: Path, ctx: Context) -> bool:
    return path == ctx.path or ctx.wrapping.runs_with(path, ctx.path)


def _said(each: Settings) -> tuple[object, ...]:
    return each.kind, dict(each.config), dict(each.optim_config)


def _is_set_for(made: cst.Call, ctx: Context, sets: Sequence[_Place], depth: int) -> bool:
    """Whether the kind is set behind a call that makes a model, in its function, or behind each call of that."""
    place: cst.CSTNode = made
    function = ctx.scope(made)
    while isinstance(function, cst.FunctionDef) and isinstance(ctx.scope(function), cst.FunctionDef):
        place, function = function, ctx.scope(function)  # one that is called there, and not given away
        if any(not _is_called_there(use, ctx) for use in ctx.uses(place)):
            return False
    here = [call for where, call in sets if where is ctx and ctx.scope(call) is function]
    if here:
        return any(_is_of(call, made, ctx) and _always_follows(call, place, ctx) for call in here)
    callers = ctx.callers(made) if depth else ()
    return bool(callers) and all(_is_set_for(call, where, sets, depth - 1) for where, call in callers)


def _is_called_there(use: cst.Name, ctx: Context) -> bool:
    """Whether a function of that name is called, or handed on for the time of a call that returns no function."""
    if any(isinstance(outer, cst.Return) for outer in ctx.ancestors(use)):
        return False
    return isinstance(ctx.parent(use), (cst.Arg, cst.Call))


def _is_of(setting: cst.Call, made: cst.Call, ctx: Context) -> bool:
    """Whether the model that a kind is set for is what a call makes."""
    models = {origin.node for origin in ctx.origins(setting.args[0].value)} - {None}
    return not models.isdisjoint(origin.node for origin in ctx.origins(made))


def _always_follows(setting: cst.Call, place: cst.CSTNode, ctx: Context) -> bool:
    """Whether the kind is always set behind a place, and no state is read on the way there."""
    function, block = ctx.scope(setting), enclosing(ctx, setting, cst.IndentedBlock, cst.Module)
    while block is not None and isinstance(ctx.parent(block), cst.With):
        block = enclosing(ctx, block, cst.IndentedBlock, cst.Module)
    start, end = ctx.span(place)[0], ctx.span(setting)[0]
    if block is None or start > end or not contains(ctx, block, place):
        return False
    between = [node for node in ctx.inside(block) if start <= ctx.span(node)[0] < end]
    if any(isinstance(node, cst.Return) and ctx.scope(node) is function for node in between):
        return False
    return not any(isinstance(node, cst.Call) and reads_further(node, ctx, _DEPTH) for node in between)


def reads_further(call: cst.Call, ctx: Context, depth: int = _DEPTH) -> bool:
    """Whether a call reads or loads a state dict, or runs a function that does."""
    if depends_on_setting(call, ctx):
        return True
    return depth > 0 and any(
        reads_further(inner, where, depth - 1) for where, function in ctx.runs(call) for inner in where.calls(function)
    )
