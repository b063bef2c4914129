"""Which `torch.save` and `torch.load` make a DCP checkpoint, with --checkpoint-format dcp."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from codemods.api import Context, ModelKind, NotStatic
from codemods.plan import PlannedContext
from codemods.reading.code.shapes import receiver
from codemods.reading.state_dicts.saves import save_of
from codemods.reading.state_dicts.setting import is_kept_at_run_time
from codemods.tables.state_dicts import OPTIMIZER_CALLS

_STATIC = "FullyShardedDataParallel."
_GUARD = re.compile(r"(not\s+)?[\w.()]*(rank|main|master)[\w.()]*(\s*(==|<=)\s*0)?$")
_SPEAKS_OF_RANKS = re.compile(r"rank|is_main|is_master|main_process")
_READS = frozenset({"full_optim_state_dict", "optim_state_dict"})


def is_saved_by_dcp(read: cst.Call, ctx: PlannedContext) -> bool:
    """Whether all that is done with a state dict is a save that can be made by all ranks together."""
    save = save_of(read, ctx) if ctx.options.saves_by_dcp else None
    return save is not None and obstacle(save, ctx) == ""


def reads(save: cst.Call, ctx: Context) -> bool:
    """Whether a wrapped model's or its optimizer's state goes into a save, and nowhere else."""
    return any(save_of(read, ctx) is save for read in _state_reads(ctx))


def _state_reads(ctx: Context) -> Iterator[cst.Call]:
    for call in ctx.nodes(cst.Call):
        static = (ctx.fsdp1(call.func) or "").removeprefix(_STATIC)
        if static in _READS:
            yield call
        elif isinstance(call.func, cst.Attribute) and call.func.attr.value == "state_dict" and not call.args:
            if ModelKind.FSDP in ctx.kinds(call.func.value):
                yield call


def obstacle(save: cst.Call, ctx: PlannedContext) -> str:
    """Why a save cannot be made by all ranks; empty when it can."""
    if any(is_kept_at_run_time(read, ctx) for read in _state_reads(ctx) if save_of(read, ctx) is save):
        return "the kind of state dict is set at run time"
    if any(ModelKind.DDP in ctx.kinds(receiver(read)) for read in _state_reads(ctx) if save_of(read, ctx) is save):
        return "the model can be a DDP model"
    statement = ctx.parent(ctx.parent(save) or save)
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return "it is not a statement of its own"
    if len(save.args) != 2 or any(argument.star for argument in save.args):
        return "it takes more than a state dict and a path"
    guards = _guards(save, ctx)
    if not guards:
        return ""
    guard = guards[0]
    if len(guards) > 1 or ctx.parent(ctx.parent(statement) or statement) is not guard or guard.orelse is not None:
        return "more than one condition chooses the rank that writes it"
    if not _GUARD.match(ctx.code(guard.test)):
        return f"`{ctx.code(guard.test)}` asks for more than the rank"
    if not all(ctx.same_meaning(argument.value, guard) for argument in save.args):
        return "what it writes, or where, is only made on one rank"
    if statement is not guard.body.body[-1]:
        return "the rank that writes it goes on with it"
    return ""


def guard_of(node: cst.CSTNode, ctx: Context) -> cst.If | None:
    """The `if` that lets one rank come here."""
    return next(iter(_guards(node, ctx)), None)


def _guards(node: cst.CSTNode, ctx: Context) -> list[cst.If]:
    tests = [outer for outer in ctx.ancestors(node) if isinstance(outer, cst.If)]
    return [outer for outer in tests if _SPEAKS_OF_RANKS.search(ctx.code(outer.test))]


def is_loaded_by_dcp(state: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a state dict comes out of a `torch.load` that reads a DCP checkpoint from now on."""
    if not ctx.options.saves_by_dcp:
        return False
    load = load_of(state, ctx)
    return load is not None and bool(models_of(load, ctx))


def load_of(state: cst.BaseExpression, ctx: Context) -> cst.Call | None:
    """The `torch.load` whose result an expression is, or is an item of."""
    while isinstance(state, cst.Subscript):
        state = state.value
    if isinstance(state, (cst.Name, cst.Attribute)):
        origins = ctx.origins(state)
        made = origins[0].node if len(origins) == 1 and origins[0].file is ctx else None
    else:
        made = state
    return made if isinstance(made, cst.Call) and ctx.dotted(made.func) == "torch.load" else None


def models_of(load: cst.Call, ctx: Context) -> Sequence[cst.BaseExpression]:
    """The wrapped models that are loaded from what a `torch.load` on every rank returns."""
    if guard_of(load, ctx) is not None or not load.args or load.args[0].star:
        return ()
    found = []
    for call in ctx.nodes(cst.Call):
        static = (ctx.fsdp1(call.func) or "").removeprefix(_STATIC)
        if static in OPTIMIZER_CALLS or not isinstance(call.func, cst.Attribute) or not call.args:
            continue
        if call.func.attr.value == "load_state_dict" and load_of(call.args[0].value, ctx) is load:
            if ModelKind.FSDP in ctx.kinds(call.func.value) and ctx.same_meaning(call.func.value, load):
                found.append(call.func.value)
    return found


def check(save: cst.Call, ctx: PlannedContext) -> None:
    """Raises NotStatic for a save that stays one file."""
    reason = obstacle(save, ctx)
    if reason:
        raise NotStatic(reason)
