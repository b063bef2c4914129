"""Which call sets the kind of state dict that is read or loaded at a place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import libcst as cst

from codemods.api import Context, ModelKind, NotStatic
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import contains, enclosing
from codemods.reading.code.program import imports_wrapper
from codemods.reading.code.words import last_name, words
from codemods.reading.models.parts import NO_MODELS, model_around
from codemods.reading.optimizers.calls import arguments_of, function_of
from codemods.reading.processes.one_rank import is_on_one_rank
from codemods.reading.state_dicts.by_class import receiver
from codemods.reading.state_dicts.dcp_alone import comes_from_dcp, is_for_dcp_alone
from codemods.reading.state_dicts.settings import Settings, context_of, default, settings
from codemods.tables.state_dicts import CONTEXT, SET

_METHODS = ("state_dict", "load_state_dict")
_STATIC = ("optim_state_dict", "optim_state_dict_to_load")
READS = (*_METHODS, *_STATIC)
"""What the kind of state dict can say something about."""

_LOADERS = frozenset({"load_state_dict", "optim_state_dict_to_load"})


def setting_of(node: cst.CSTNode, ctx: Context) -> cst.Call | None:
    """The `state_dict_type` around a node, or the `set_state_dict_type` that always ran before in its function."""
    return context_of(node, ctx) or set_above(node, ctx)


def is_in_context(node: cst.CSTNode, ctx: Context) -> bool:
    """Whether a node stands in a `state_dict_type`, of whatever model: `with context:` of what a function gave, too."""
    blocks = (outer for outer in ctx.ancestors(node) if isinstance(outer, cst.With))
    return any(_is_entered(item.item, ctx) for block in blocks for item in block.items)


def _is_entered(entered: cst.BaseExpression, ctx: Context) -> bool:
    made = [(ctx, entered), *((origin.file, origin.node) for origin in ctx.origins(entered))]
    return any(isinstance(node, cst.Call) and where.fsdp1(node.func) == CONTEXT for where, node in made)


def usual_or_default(model: cst.BaseExpression, ctx: PlannedContext) -> Settings:
    """What holds where a function sets nothing: what is set where the model is wrapped, or what FSDP1 does."""
    usual = ctx.plan.usual_settings.get(ctx.path)
    return default(model) if usual is None else replace(usual, model=model)


def is_kept_at_run_time(node: cst.CSTNode, ctx: PlannedContext) -> bool:
    """Whether the support module says at run time of which kind the state dict is that is read or loaded here."""
    setting = setting_of(node, ctx)
    if setting is not None:
        return ctx.plan.keeps_setting(setting)
    return any(path == ctx.path or ctx.wrapping.runs_with(ctx.path, path) for path in ctx.plan.keeping)


def set_above(node: cst.CSTNode, ctx: Context) -> cst.Call | None:
    """The last `set_state_dict_type` above a node that no condition parts from it."""
    start = ctx.span(node)[0]
    calls = ctx.calls(ctx.scope(node))
    sets = [call for call in calls if ctx.fsdp1(call.func) == SET]
    above = [call for call in sets if ctx.span(call)[1] <= start]
    while len(above) > 1 and _is_of_another_model(above[-1], above[:-1], node, ctx):
        above.pop()
    last = above[-1] if above else None
    line = enclosing(ctx, last, cst.SimpleStatementLine) if last is not None else None
    block = ctx.parent(line) if line is not None else None
    if last is None or block is None or not contains(ctx, block, node):
        return None
    between = [call for call in calls if ctx.span(last)[1] <= ctx.span(call)[0] and ctx.span(call)[1] <= start]
    again = [outer for outer in ctx.ancestors(node) if isinstance(outer, (cst.For, cst.While))]
    loops = [loop for loop in again if not contains(ctx, loop, last)]
    is_set_below = any(contains(ctx, loop, call) for loop in loops for call in sets)
    return None if is_set_below or any(_sets(call, ctx) for call in between) else last


def _is_of_another_model(last: cst.Call, above: Sequence[cst.Call], node: cst.CSTNode, ctx: Context) -> bool:
    """Whether a model other than the last one is read, for which the same kind is set above: none is a part of another.

    Two names can be of one model; then the kind is the same still.
    """
    model = _model_read(node, ctx)
    own = next((call for call in reversed(above) if model and _model_set(call, ctx) == model), None)
    other = _model_set(last, ctx)
    if own is None or f"{model}.".startswith(f"{other}.") or other.startswith(f"{model}."):
        return False
    try:
        one, two = settings(own, ctx), settings(last, ctx)
    except NotStatic:
        return False
    return (one.kind, one.config) == (two.kind, two.config)


def _model_set(setting: cst.Call, ctx: Context) -> str:
    return ctx.code(setting.args[0].value) if setting.args else ""


def _model_read(node: cst.CSTNode, ctx: Context) -> str:
    """The text of the model whose state dict a call reads or loads; empty for any other node."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute) or node.func.attr.value not in READS:
        return ""
    return _model_of(node, node.func, ctx)


def _sets(call: cst.Call, ctx: Context) -> bool:
    """Whether a function that a call runs sets a kind itself."""
    return any(where.fsdp1(inner.func) == SET for where, run in ctx.runs(call) for inner in where.calls(run))


def is_set_in_sight(call: cst.Call, ctx: PlannedContext) -> bool:
    """Whether every state dict of the program's models that a setting can hold for is read where that is seen."""
    if not isinstance(ctx.parent(call), cst.Expr):
        return False
    for where, function in ctx.attributes(*READS):
        read = where.parent(function)
        if not isinstance(read, cst.Call) or read.func is not function or not depends_on_setting(read, where):
            continue
        model = receiver(read, where) or function.value
        if function.attr.value == "load_state_dict" and not is_gathered(model, read, where):
            continue  # it stays as it is: what is not seen to be wrapped is loaded as a whole, whatever is set
        if function.attr.value == "state_dict" and is_on_one_rank(read, where):
            continue  # it raises
        setting = setting_of(read, where)
        if setting is None and where.path in ctx.plan.usual_settings:
            continue
        if setting is None and not _is_the_same_without(read, where, call, ctx):
            return False
        if setting is not None and _model_set(setting, where) != _model_of(read, function, where):
            return False
    return True


def _is_the_same_without(read: cst.Call, where: Context, call: cst.Call, ctx: Context) -> bool:
    """Whether a read comes before a setting, or is one that this setting, or any, changes nothing for."""
    if where is ctx and ctx.scope(read) is ctx.scope(call) and ctx.span(read)[1] <= ctx.span(call)[0]:
        loops = [outer for outer in ctx.ancestors(call) if isinstance(outer, (cst.For, cst.While))]
        return not any(contains(ctx, loop, read) for loop in loops) and _runs_once(call, ctx)
    try:
        chosen = settings(call, ctx)
    except NotStatic:
        return False
    if is_for_dcp_alone(read, where) or comes_from_dcp(read, where):
        return True
    usual = default(chosen.model)
    is_load = isinstance(read.func, cst.Attribute) and read.func.attr.value in _LOADERS
    return chosen.is_full and (is_load or (chosen.config, chosen.optim_config) == (usual.config, usual.optim_config))


def _runs_once(node: cst.CSTNode, ctx: Context) -> bool:
    """Whether a node stands in the file itself, or in a function that is only a file itself calls: `main()`."""
    if isinstance(ctx.scope(node), cst.Module):
        return True
    callers = ctx.callers(node)
    return len(callers) == 1 and all(
        isinstance(where.scope(call), cst.Module)
        and not any(isinstance(outer, (cst.For, cst.While)) for outer in where.ancestors(call))
        for where, call in callers
    )


def _model_of(read: cst.Call, function: cst.Attribute, ctx: Context) -> str:
    if function.attr.value in _METHODS:
        return ctx.code(receiver(read, ctx) or function.value)
    try:
        given = arguments_of(read, function.attr.value, ctx)
    except NotStatic:
        return ctx.code(read.args[0].value) if read.args else ""
    return ctx.code(given["model"].value) if "model" in given else ""


def depends_on_setting(call: cst.Call, ctx: Context) -> bool:
    """Whether what a call returns or loads can depend on the kind of state dict that is set."""
    if function_of(call, ctx) in _STATIC:
        return True
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in _METHODS:
        return False
    owner = receiver(call, ctx) or call.func.value
    if is_gathered(owner, call, ctx):
        return True
    return ModelKind.UNKNOWN in ctx.kinds(owner) and not words(last_name(owner)) & NO_MODELS


def is_gathered(model: cst.BaseExpression, call: cst.Call, ctx: Context) -> bool:
    """Whether FSDP1 made the state dict of a model whole: it is wrapped, or parts of it, or what is around it.

    A model of which the program set the kind of state dict right above is one of those.
    """
    if ModelKind.FSDP in ctx.kinds(model) or model_around(model, ctx) is not None:
        return True
    # A load by what knows nothing of FSDP comes before the wrapping as a rule; where it does not, it raises.
    is_load = isinstance(call.func, cst.Attribute) and call.func.attr.value == "load_state_dict"
    if (not is_load or imports_wrapper(ctx)) and ctx.holds_parts(model):
        return True
    setting = set_above(call, ctx)
    given = setting.args[0].value if setting is not None and setting.args else None
    return given is not None and ctx.code(given) == ctx.code(model) and ctx.same_meaning(given, call)
