"""Where a state goes that a call of FSDP1 made ready for an optimizer, and who has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import libcst as cst

from codemods.api import Context, NotStatic, Origin
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import contains, enclosing, upward
from codemods.reading.code.shapes import alone, called_on, keywords
from codemods.reading.optimizers.calls import Given, arguments_of, function_of
from codemods.reading.optimizers.first_step import may_be_before_first_step
from codemods.reading.optimizers.makers import is_stateless
from codemods.reading.optimizers.reading import READERS, has_own_group
from codemods.reading.processes.one_rank import is_on_one_rank
from codemods.reading.state_dicts.choice import choice_around
from codemods.reading.state_dicts.dcp_format import is_loaded_by_dcp
from codemods.reading.state_dicts.setting import setting_of
from codemods.reading.state_dicts.settings import Settings, settings
from codemods.reading.wraps.flat_parameters import had_original_parameters
from codemods.tables.optimizers import BOUND
from codemods.tables.state_dicts import DCP_READERS

_SHARDED = "SHARDED_STATE_DICT"
_DEPTH = 3
"""How many callers are followed."""

_ITEMS = frozenset({"get", "pop"})

STATES = ("optim_state_dict", "full_optim_state_dict", "sharded_optim_state_dict")
"""What the parameter is called that takes the saved state."""


@dataclass(frozen=True)
class Loading:
    """What loads the state, whole: `set_optimizer_state_dict` stands for both calls."""

    optimizer: cst.BaseExpression
    replaced: cst.CSTNode
    """The expression, or the assignment, that the new call takes the place of."""
    gone: tuple[cst.CSTNode, ...] = ()
    """The statement that loads the result, where it is another one, and those that let go of it."""
    result: cst.BaseAssignTargetExpression | None = None
    """What the program calls the result, where it does more with it before it loads it."""
    let_go: tuple[cst.Element, ...] = ()
    """The result among other names that the program lets go of: `del checkpoint, state`."""
    elsewise: cst.CSTNode | None = None
    """The statement that loads it, where that stands right below the `if` around, and is for the other way too."""


def loading_of(call: cst.Call, given: Given, ctx: Context) -> Loading | None:
    """None where what the call returns goes elsewhere, or is not seen to be loaded at once."""
    holder = ctx.parent(call)
    if "load_directly" in given:
        is_alone = isinstance(holder, cst.Expr) and ctx.code(given["load_directly"].value) == "True"
        return Loading(given["optim"].value, call) if is_alone and "optim" in given else None
    if isinstance(holder, cst.Arg):
        load = _load(holder, ctx)
        return _checked(load, load, (), given, ctx)
    if not isinstance(holder, cst.Assign) or len(holder.targets) != 1:
        return None
    if is_unused(call, ctx):
        optimizer = given["optim"].value if "optim" in given else _at_hand(call, ctx)
        return Loading(optimizer, holder) if optimizer is not None else None
    uses = ctx.uses(holder)
    ends = [end for use in uses if (end := _end(use, holder, ctx)) is not None]
    lines = [end for end in ends if not isinstance(end, cst.Element)]
    let_go = tuple(end for end in ends if isinstance(end, cst.Element))
    read = [use for use in uses if not _is_let_go(use, ctx)]
    load = _load(ctx.parent(read[0]), ctx) if len(read) == 1 and len(read) + len(ends) == len(uses) else None
    statement = enclosing(ctx, load, cst.SimpleStatementLine) if load is not None else None
    if statement is not None and len(statement.body) == 1 and _follows(statement, holder, ctx):
        found = _checked(load, holder, (statement, *lines), given, ctx)
        return replace(found, let_go=let_go) if found is not None else None
    return _loaded_later(holder, uses, given, ctx)


def _is_let_go(use: cst.CSTNode, ctx: Context) -> bool:
    """`del state`, and `del checkpoint, state`."""
    holder = ctx.parent(use)
    among = ctx.parent(holder) if isinstance(holder, cst.Element) else None
    return isinstance(ctx.parent(among) if isinstance(among, cst.Tuple) else holder, cst.Del)


def _end(use: cst.CSTNode, holder: cst.CSTNode, ctx: Context) -> cst.CSTNode | None:
    """The line `del state` behind what makes the state, or its name in it, where that is one of several."""
    line = enclosing(ctx, use, cst.SimpleStatementLine)
    if not _is_let_go(use, ctx) or line is None or len(line.body) != 1 or not _follows(line, holder, ctx):
        return None
    named = ctx.parent(use)
    return named if isinstance(named, cst.Element) else line


def _loaded_later(holder: cst.Assign, uses: Sequence[cst.Name], given: Given, ctx: Context) -> Loading | None:
    """`state = f(…)` under a condition, and the load below it; or the program changes the result first."""
    loads = (load for use in uses if (load := _load_around(use, ctx)) is not None and _is_behind(load, holder, ctx))
    found = next((_checked(load, holder, (), given, ctx) for load in loads), None)
    line = ctx.parent(holder)
    if found is None or not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return None
    below = _below_if(line, ctx)
    read = [use for use in uses if not _is_let_go(use, ctx)]
    if below is not None and len(read) == 1 and (load := _load(ctx.parent(read[0]), ctx)) is not None:
        if enclosing(ctx, load, cst.SimpleStatementLine) is below:
            return replace(found, elsewise=below)
    return replace(found, result=holder.targets[0].target)


def _below_if(line: cst.SimpleStatementLine, ctx: Context) -> cst.SimpleStatementLine | None:
    """The statement below an `if` without an `else`, in whose body a statement stands."""
    block = ctx.parent(line)
    choice = ctx.parent(block) if block is not None else None
    if not isinstance(choice, cst.If) or choice.orelse is not None:
        return None
    around = ctx.parent(choice)
    if not isinstance(around, (cst.IndentedBlock, cst.Module)):
        return None
    below = around.body[around.body.index(choice) + 1 :][:1]
    return next((each for each in below if isinstance(each, cst.SimpleStatementLine) and len(each.body) == 1), None)


def _is_behind(load: cst.CSTNode, holder: cst.CSTNode, ctx: Context) -> bool:
    """Whether no condition parts a load from what stands above it."""
    blocks = [outer for outer in ctx.ancestors(load) if isinstance(outer, (cst.IndentedBlock, cst.Module))]
    blocks = [block for block in blocks if not isinstance(ctx.parent(block), cst.With)]
    return ctx.span(load)[0] > ctx.span(holder)[1] and contains(ctx, blocks[0], holder)


def _load_around(use: cst.CSTNode, ctx: Context) -> cst.Call | None:
    """The `optimizer.load_state_dict` that a value goes to, whatever it goes through on its way."""
    for outer in ctx.ancestors(use):
        if isinstance(outer, cst.Arg) and (load := _load(outer, ctx)) is not None:
            return load
        if isinstance(outer, cst.BaseSmallStatement):
            break
    return None


def _at_hand(call: cst.Call, ctx: Context) -> cst.BaseExpression | None:
    """The optimizer that the function around is given, as the name of its parameter says."""
    function = ctx.scope(call)
    params = function.params.params if isinstance(function, cst.FunctionDef) else ()
    named = [param.name for param in params if param.name.value.rpartition("_")[2] in BOUND]
    return named[0] if len(named) == 1 else None


def is_unused(call: cst.Call, ctx: Context) -> bool:
    """Whether a local name is bound to the result of a call on names alone, and nothing reads it."""
    holder = ctx.parent(call)
    if not isinstance(holder, cst.Assign) or len(holder.targets) != 1 or isinstance(ctx.scope(call), cst.Module):
        return False
    if not isinstance(holder.targets[0].target, cst.Name) or ctx.uses(holder):
        return False
    is_plain = alone(ctx.parent(holder)) is not None and "load_directly" not in keywords(call.args)
    return is_plain and all(isinstance(each.value, (cst.Name, cst.Attribute)) for each in call.args)


def _load(argument: cst.CSTNode | None, ctx: Context) -> cst.Call | None:
    """`optimizer.load_state_dict(…)`, a statement of its own, by its only argument."""
    call = ctx.parent(argument) if isinstance(argument, cst.Arg) else None
    is_load = isinstance(called_on(call, "load_state_dict"), (cst.Name, cst.Attribute))
    if not isinstance(call, cst.Call) or not is_load or len(call.args) != 1:
        return None
    return call if isinstance(ctx.parent(call), cst.Expr) else None


def _checked(
    load: cst.Call | None, replaced: cst.CSTNode | None, gone: tuple[cst.CSTNode, ...], given: Given, ctx: Context
) -> Loading | None:
    """The optimizer that is loaded is the one that the state was made ready for."""
    if load is None or replaced is None:
        return None
    owner = cst.ensure_type(load.func, cst.Attribute).value
    is_same = "optim" not in given or ctx.code(given["optim"].value) == ctx.code(owner)
    return Loading(owner, replaced, gone) if is_same and ctx.same_meaning(owner, replaced) else None


def _follows(statement: cst.CSTNode, first: cst.CSTNode, ctx: Context) -> bool:
    """Whether a statement is always come to behind another: in the same block, or in one that only `with`s part."""
    for inner, outer in upward(ctx, first):
        if isinstance(outer, (cst.IndentedBlock, cst.Module)) and any(each is statement for each in outer.body):
            return ctx.span(statement)[0] > ctx.span(inner)[0]
        if not isinstance(outer, (cst.With, cst.IndentedBlock, cst.SimpleStatementLine)):
            return False
    return False


def is_sharded(call: cst.Call, name: str, state: cst.BaseExpression, ctx: PlannedContext) -> bool:
    """Whether the state came through `torch.distributed.checkpoint`, and each rank has its part of it."""
    if name == "flatten_sharded_optim_state_dict" or is_loaded_by_dcp(state, ctx):
        return True
    if name != "optim_state_dict_to_load":
        return False
    kinds = kinds_around(call, ctx)
    return kinds == {_SHARDED} or (not kinds and any(_is_read_by_dcp(origin) for origin in _made(state, ctx)))


def kinds_around(call: cst.Call, ctx: PlannedContext) -> frozenset[str]:
    """The kinds of state dict that are set for a call, or where its function is called; "" for what is not seen."""
    usual = ctx.plan.usual_settings.get(ctx.path)
    return _kinds_around(call, ctx, frozenset() if usual is None else frozenset({usual.kind}), _DEPTH)


def _kinds_around(call: cst.Call, ctx: Context, usual: frozenset[str], depth: int) -> frozenset[str]:
    context = setting_of(call, ctx)
    if context is None:
        callers = ctx.callers(call) if depth else ()
        found = [_kinds_around(caller, where, usual, depth - 1) for where, caller in callers]
        return frozenset().union(*found) if found else usual
    try:
        return frozenset({settings(context, ctx).kind})
    except NotStatic:
        return frozenset({""})


def is_on_first_rank_only(call: cst.Call, name: str, state: cst.BaseExpression, ctx: PlannedContext) -> bool:
    """Whether ranks but the first can be without the state."""
    chosen = _settings(call, ctx)
    may_be = name == "scatter_full_optim_state_dict"
    may_be = may_be or (chosen is not None and chosen.optim_config.get("rank0_only") != "False")
    made = _made(state, ctx)
    return may_be and not (made and all(_is_on_every_rank(origin) for origin in made))


def _settings(call: cst.Call, ctx: PlannedContext) -> Settings | None:
    """Those of the context around a call, or of all models."""
    context = setting_of(call, ctx)
    try:
        return settings(context, ctx) if context is not None else ctx.plan.usual_settings.get(ctx.path)
    except NotStatic:
        chosen = choice_around(call, ctx)
        return chosen.full if chosen is not None else None


def _made(state: cst.BaseExpression, ctx: Context, depth: int = _DEPTH) -> Sequence[Origin]:
    """Where a state is made, or what it is an item of."""
    found: list[Origin] = []
    for origin in ctx.origins(_whole(state)):
        node = origin.node
        is_item = isinstance(node, cst.BaseExpression) and _whole(node) is not node
        found += _made(node, origin.file, depth - 1) if is_item and depth else [origin]  # type: ignore[arg-type]
    return found


def _whole(item: cst.BaseExpression) -> cst.BaseExpression:
    """`saved` of `saved["optim"]` and of `saved.pop("optim", None)`."""
    while (holder := item.value if isinstance(item, cst.Subscript) else called_on(item, *_ITEMS)) is not None:
        item = holder
    return item


def _is_read_by_dcp(origin: Origin) -> bool:
    return isinstance(origin.node, cst.Call) and origin.file.dotted(origin.node.func) in DCP_READERS


def _is_on_every_rank(origin: Origin) -> bool:
    return isinstance(origin.node, cst.Call) and not is_on_one_rank(origin.node, origin.file)


def has_tensors(optimizer: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a state is seen to have what torch can broadcast."""
    return not is_stateless(optimizer, ctx) and not _saves_before_first_step(ctx)


def _saves_before_first_step(ctx: Context) -> bool:
    """Whether the program can save an optimizer that has no state yet: torch would count a step when it is loaded."""
    for where, function in ctx.attributes(*READERS):
        call = where.parent(function)
        name = function_of(call, where) if isinstance(call, cst.Call) and call.func is function else None
        if isinstance(call, cst.Call) and name is not None:
            try:
                optimizer = arguments_of(call, name, where).get("optim")
            except NotStatic:
                return True
            if optimizer is not None and may_be_before_first_step(call, optimizer.value, where):
                return True
    return False


def is_loaded_either_way(call: cst.Call, ctx: PlannedContext) -> bool:
    """Whether torch's function loads a state that may be whole, or each rank's part, as FSDP1 did."""
    name = function_of(call, ctx)
    if name != "optim_state_dict_to_load" or ctx.wrapping.compiles(ctx.path):
        return False
    given = arguments_of(call, name, ctx)
    state, model = given.get("optim_state_dict"), given.get("model")
    found = loading_of(call, given, ctx)
    if found is None or state is None or model is None:
        return False
    is_plain = had_original_parameters(model.value, ctx) and not has_own_group(given, ctx)
    is_whole = is_plain and not is_on_first_rank_only(call, name, state.value, ctx)
    return is_whole and has_tensors(found.optimizer, ctx) and not is_loaded_by_dcp(state.value, ctx)
