"""Which `torch.save` and `torch.load` make a DCP checkpoint, with --checkpoint-format dcp."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from codemods.tables.state_dicts import OPTIMIZER_CALLS
from codemods.vocabulary import File, Holds, Undecided

_STATIC = "FullyShardedDataParallel."
_GUARD = re.compile(r"(not\s+)?[\w.()]*(rank|main|master)[\w.()]*(\s*(==|<=)\s*0)?$")
_SPEAKS_OF_RANKS = re.compile(r"rank|is_main|is_master|main_process")
_READS = frozenset({"full_optim_state_dict", "optim_state_dict"})


def is_saved_by_dcp(read: cst.Call, file: File) -> bool:
    """Whether all that is done with a state dict is a save that can be made by all ranks together."""
    save = save_of(read, file) if file.saves_by_dcp else None
    return save is not None and obstacle(save, file) == ""


def save_of(value: cst.BaseExpression, file: File) -> cst.Call | None:
    """The `torch.save` that is all that is done with a value."""
    holder: cst.CSTNode | None = value
    while isinstance(file.parent(holder), (cst.DictElement, cst.Dict)) if holder is not None else False:
        holder = file.parent(holder) if holder is not None else None
    parent = file.parent(holder) if holder is not None else None
    if isinstance(parent, cst.Arg):
        call = file.parent(parent)
        is_save = isinstance(call, cst.Call) and file.dotted(call.func) == "torch.save" and call.args[0] is parent
        return call if is_save and isinstance(call, cst.Call) else None
    if not isinstance(parent, cst.Assign) or len(parent.targets) != 1:
        return None
    if not isinstance(parent.targets[0].target, cst.Name):
        return None
    saves = {save_of(use, file) for use in file.uses(parent)}
    return saves.pop() if len(saves) == 1 else None


def may_alias(read: cst.Call, file: File) -> bool:
    """Whether a full state dict can be kept whose tensors are the model's own, and go on changing with it.

    They are where each rank has the whole of them, as with NO_SHARD: there is nothing to gather. FSDP1 gave copies.
    """
    return file.mentions("NO_SHARD") and save_of(read, file) is None


def reads(save: cst.Call, file: File) -> bool:
    """Whether a wrapped model's or its optimizer's state goes into a save, and nowhere else."""
    return any(save_of(read, file) is save for read in _state_reads(file))


def _state_reads(file: File) -> Iterator[cst.Call]:
    for call in file.nodes(cst.Call):
        static = (file.fsdp1(call.func) or "").removeprefix(_STATIC)
        if static in _READS:
            yield call
        elif isinstance(call.func, cst.Attribute) and call.func.attr.value == "state_dict" and not call.args:
            if Holds.FSDP in file.holds(call.func.value):
                yield call


def _owner(read: cst.Call) -> cst.BaseExpression:
    """The model, or the class whose static method is called."""
    return cst.ensure_type(read.func, cst.Attribute).value


def obstacle(save: cst.Call, file: File) -> str:
    """Why a save cannot be made by all ranks; empty when it can."""
    if file.state_dicts_at_run_time:
        return "the kind of state dict is set at run time"
    if any(Holds.DDP in file.holds(_owner(read)) for read in _state_reads(file) if save_of(read, file) is save):
        return "the model can be a DDP model"
    statement = file.parent(file.parent(save) or save)
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return "it is not a statement of its own"
    if len(save.args) != 2 or any(argument.star for argument in save.args):
        return "it takes more than a state dict and a path"
    guards = _guards(save, file)
    if not guards:
        return ""
    guard = guards[0]
    if len(guards) > 1 or file.parent(file.parent(statement) or statement) is not guard or guard.orelse is not None:
        return "more than one condition chooses the rank that writes it"
    if not _GUARD.match(file.code(guard.test)):
        return f"`{file.code(guard.test)}` asks for more than the rank"
    if not all(file.same_meaning(argument.value, guard) for argument in save.args):
        return "what it writes, or where, is only made on one rank"
    if statement is not guard.body.body[-1]:
        return "the rank that writes it goes on with it"
    return ""


def guard_of(node: cst.CSTNode, file: File) -> cst.If | None:
    """The `if` that lets one rank come here."""
    return next(iter(_guards(node, file)), None)


def _guards(node: cst.CSTNode, file: File) -> list[cst.If]:
    tests = [outer for outer in file.ancestors(node) if isinstance(outer, cst.If)]
    return [outer for outer in tests if _SPEAKS_OF_RANKS.search(file.code(outer.test))]


def is_loaded_by_dcp(state: cst.BaseExpression, file: File) -> bool:
    """Whether a state dict comes out of a `torch.load` that reads a DCP checkpoint from now on."""
    if not file.saves_by_dcp:
        return False
    load = load_of(state, file)
    return load is not None and bool(models_of(load, file))


def load_of(state: cst.BaseExpression, file: File) -> cst.Call | None:
    """The `torch.load` whose result an expression is, or is an item of."""
    while isinstance(state, cst.Subscript):
        state = state.value
    if isinstance(state, cst.Name):
        origins = file.origins(state)
        made = origins[0].node if len(origins) == 1 and origins[0].file is file else None
    else:
        made = state
    return made if isinstance(made, cst.Call) and file.dotted(made.func) == "torch.load" else None


def models_of(load: cst.Call, file: File) -> Sequence[cst.BaseExpression]:
    """The wrapped models that are loaded from what a `torch.load` on every rank returns."""
    if guard_of(load, file) is not None or not load.args or load.args[0].star:
        return ()
    found = []
    for call in file.nodes(cst.Call):
        static = (file.fsdp1(call.func) or "").removeprefix(_STATIC)
        if static in OPTIMIZER_CALLS or not isinstance(call.func, cst.Attribute) or not call.args:
            continue
        if call.func.attr.value == "load_state_dict" and load_of(call.args[0].value, file) is load:
            if Holds.FSDP in file.holds(call.func.value) and file.same_meaning(call.func.value, load):
                found.append(call.func.value)
    return found


def check(save: cst.Call, file: File) -> None:
    """Raises Undecided for a save that stays one file."""
    reason = obstacle(save, file)
    if reason:
        raise Undecided(reason)
