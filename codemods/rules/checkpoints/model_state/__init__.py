"""**What it does.** Rewrites `model.state_dict()` and `model.load_state_dict(...)` of a wrapped model outside a
`state_dict_type` context.

**Why.** FSDP1's default is the full state dict on every rank. On an FSDP2 model `state_dict()` returns sharded
DTensors without a word, and a checkpoint saved from rank 0 would hold that rank's shard only.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(net, path):
    model = FSDP(net)
    torch.save(model.state_dict(), path)
```

## Use instead

```python
import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


def save(net, path):
    model = fully_shard(net)
    torch.save(get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)), path)
```

## Fix safety

Same keys, order, dtypes and values (torch 2.13). All ranks have to take part, as in FSDP1. Functions of the support
module stand in for torch's where those would give something else:

- The program compiles a model or a part of one: torch takes the `_orig_mod.` out of the names, which FSDP1 left there.
- The program adds keys to state dicts, by a hook or a `state_dict` of a class's own: torch raises for what is no
  parameter and no buffer.
- With NO_SHARD there is nothing to gather, and torch returns the parameters themselves, which go on training. What is
  not saved at once is a copy, as FSDP1's was. (On a single rank it is never one: clone what you keep.)
- A constructor call names a process group or a part of a mesh: torch broadcasts from the first rank of all, and gives
  groups with weights of their own its values.
- The model may be none of FSDP's in a process without a process group, in which nothing can be broadcast.
- The model can be a DDP model, whose keys keep their prefix: `whole_state_dict(model)` takes any.
- The model's class has a `load_state_dict` of its own: FSDP1's wrapper went past it, as `load_past_own_method` does.
- The program sets state-dict types for code that is not seen: `model_state_dict(model)` decides at run time.

What all ranks save by `torch.distributed.checkpoint`, or load into and then into the model, stays as it is: the file is
the same, whatever kind is set.

Torch puts the model's own DTensors into what it loads: a state dict that the program reads again, such as one for two
models, is loaded as a `dict` of its own.

A state dict in a context of another library that is given the model (`with sm_state_dict_type(model, kind):`) is
reported, and raises: what it is under FSDP1 is for that library to decide, which knows nothing of FSDP2.

The state dict of the module inside of the wrapper (`wrapped = FSDP(model)`, then `model.state_dict()`) is reported:
FSDP1 gave this rank's flat pieces of what the root itself shards, and only the rest of it whole. Where one rank alone
reads the state dict of an FSDP model the program raises: gathering it would wait for the others.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import libcst as cst

from codemods.api import (
    SUPPORT,
    Context,
    Finding,
    Fix,
    Import,
    Level,
    ModelKind,
    NotStatic,
    Raise,
    Rule,
    finding,
    left,
    replaced,
)
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import enclosing, is_inside
from codemods.reading.code.places import bound
from codemods.reading.code.program import imports_wrapper
from codemods.reading.code.shapes import is_attribute
from codemods.reading.code.words import last_name, words
from codemods.reading.edits.call_layout import quoted_argument
from codemods.reading.edits.layout import insertion
from codemods.reading.edits.resharding import reshards
from codemods.reading.forwards.after_forward import holds_copies
from codemods.reading.models.just_made import is_just_made
from codemods.reading.models.parts import NO_MODELS, UNITS_ONLY, compiled_from, model_around, unwrapped
from codemods.reading.models.plain_objects import but_for_others, is_asked_for, may_be_of_torch, may_be_plain
from codemods.reading.optimizers.calls import function_of
from codemods.reading.parameters.summoned import is_summoned_no_more
from codemods.reading.processes.one_process import may_run_alone
from codemods.reading.processes.one_rank import is_on_one_rank, is_reached_by_one_rank
from codemods.reading.state_dicts.by_class import own_arguments, receiver
from codemods.reading.state_dicts.choice import either
from codemods.reading.state_dicts.chosen_setting import ChosenSetting, chosen_setting
from codemods.reading.state_dicts.dcp_alone import comes_from_dcp, is_for_dcp_alone
from codemods.reading.state_dicts.dcp_format import is_loaded_by_dcp, is_saved_by_dcp
from codemods.reading.state_dicts.model_loading import PAST_OWN, has_own_method, loading, options_to_load
from codemods.reading.state_dicts.own_keys import adds_keys
from codemods.reading.state_dicts.saves import may_alias
from codemods.reading.state_dicts.setting import (
    is_gathered,
    is_in_context,
    is_kept_at_run_time,
    set_above,
    setting_of,
    usual_or_default,
)
from codemods.reading.state_dicts.setting_helpers import helper_of
from codemods.reading.state_dicts.settings import Settings, context_of, reading_options, settings
from codemods.reading.units.walked import walked_from
from codemods.reading.values.defaults import parameter_named
from codemods.reading.wrappers.engines import is_another_engines, is_xlas
from codemods.reading.wrappers.foreign_context import foreign_context
from codemods.reading.wrappers.inner_module import is_inner_module
from codemods.reading.wraps.process_groups import has_group_of_its_own
from codemods.reading.wraps.wrapped import wrapped_module
from codemods.tables.names import SUMMON
from codemods.tables.state_dicts import CONTEXT, DCP, FULL, LOADED_ALONE, LOADED_HINT, READ_ALONE, READ_HINT

from .alike import is_between_alike
from .other_strategies import is_for_other_models
from .state_dict_uses import is_described
from .way_without_fsdp import is_way_without_fsdp

CODE = "FM304"

_METHODS = {"state_dict": "get_model_state_dict", "load_state_dict": "set_model_state_dict"}
_MODEL = re.compile(
    r"(model|module|net|network|transformer|unet|actor|critic|policy|student|teacher)\w*\W*$", re.IGNORECASE
)


_OTHERS = {*NO_MODELS, "ddp"}
_SETTINGS = frozenset({"args", "cfg", "config", "hparams"})
"""What is called like this holds settings, which have a `state_dict()` of their own in some programs."""
_HANDS_OVER = {"get", "get_nowait", "result"}
_OWN = {"destination", "keep_vars", "prefix"}
"""What `nn.Module.state_dict` takes, and FSDP1's wrapper handed on to it."""


@dataclass(frozen=True)
class StateCall:
    """`model.state_dict()` or `model.load_state_dict(state)`."""

    call: cst.Call
    model: cst.BaseExpression
    method: str
    given: Sequence[cst.Arg]


def fix(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    found = _find(call, ctx)
    if found is None or _is_loaded_before_wrapping(found, ctx):
        return None
    made = _edit(found, ctx)
    if made is None:
        return None
    if found.method == "state_dict" and model_around(found.model, ctx) is not None:
        made = replace(made, findings=[_of_a_part(each) for each in made.findings])
    if found.method == "load_state_dict" and ctx.kinds(found.model) == {ModelKind.FSDP} and is_on_one_rank(call, ctx):
        asking = [replace(each, level=Level.MANUAL, hint=LOADED_HINT) for each in made.findings]
        made = replace(made, findings=[replace(each, message=f"{each.message}; {LOADED_ALONE}") for each in asking])
    if found.method == "state_dict" and made.edits and _is_read_alone(call, ctx):
        told = [
            replace(f, level=Level.MANUAL, message=f"{f.message}; {READ_ALONE}", hint=READ_HINT) for f in made.findings
        ]
        made = replace(made, findings=told)
    is_torchs = any(item.module == DCP for item in made.imports)  # which takes modules alone
    is_mixed = may_be_plain(ctx, found.model) or (is_torchs and _is_one_of_several(found.model, ctx))
    return but_for_others(made, call, ctx) if made.edits and is_mixed else made


def _is_one_of_several(model: cst.BaseExpression, ctx: Context) -> bool:
    """`value` of `for key, value in objects.items():`, which has more than models, and not all of it is seen."""
    if not isinstance(model, cst.Name) or _MODEL.search(model.value) or ctx.kinds(model) == {ModelKind.FSDP}:
        return False
    if may_be_of_torch(ctx, model):
        return True
    if is_asked_for(ctx, model):
        return False
    loops = (outer.for_in if isinstance(outer, cst.BaseComp) else outer for outer in ctx.ancestors(model))
    return any(isinstance(each, (cst.For, cst.CompFor)) and model.value in bound(each.target) for each in loops)


def _is_read_alone(call: cst.Call, ctx: Context) -> bool:
    """Whether one rank alone calls the method around; what stands under such a test itself is told of elsewhere."""
    return not is_on_one_rank(call, ctx) and is_reached_by_one_rank(call, ctx)


def _is_loaded_before_wrapping(found: StateCall, ctx: PlannedContext) -> bool:
    """Whether one rank alone loads what also comes here unwrapped: it cannot wait for the others, and did not."""
    is_plain_too = found.method == "load_state_dict" and ModelKind.OTHER in ctx.kinds(found.model)
    return is_plain_too and is_on_one_rank(found.call, ctx)


def _find(call: cst.Call, ctx: PlannedContext) -> StateCall | None:
    model, method = receiver(call, ctx), last_name(call.func)
    if model is None or method not in _METHODS or is_another_engines(call, ctx) or is_xlas(model, ctx):
        return None
    if any(_is_of_optimizer(argument.value, ctx) for argument in call.args):
        return None
    is_inner = method == "state_dict" and is_inner_module(model, call, ctx)
    if is_just_made(ctx, model) and ctx.kinds(model) != {ModelKind.UNKNOWN} and not is_inner:
        return None  # it is wrapped further down
    whole = model_around(model, ctx) or model
    name = ctx.code(unwrapped(compiled_from(whole, ctx) if method == "state_dict" else whole))
    if is_inside(call, SUMMON, name, ctx) and not is_summoned_no_more(call, name, ctx):
        return None  # parameters are whole there, on this rank alone if so chosen
    given = own_arguments(call, ctx)
    named = {argument.keyword.value for argument in given if argument.keyword is not None}
    if method == "state_dict" and named - _OWN:
        return None  # a class of another kind takes more
    in_context = is_inside(call, CONTEXT, ctx.code(model), ctx) or is_inside(call, CONTEXT, name, ctx)
    in_context |= _is_in_helper(call, {ctx.code(model), name}, ctx)
    in_context |= method == "state_dict" and walked_from(model, ctx) is not None
    if in_context:
        return StateCall(call, model, method, given) if is_kept_at_run_time(call, ctx) else None
    held = ctx.kinds(model)
    if is_gathered(model, call, ctx) or is_inner:
        return StateCall(call, model, method, given)
    if method == "load_state_dict" and _is_gathered_above(model, call, ctx):
        return StateCall(call, model, method, given)
    is_silent = method == "state_dict"  # whole tensors are not loaded into shards without an error
    may_be = is_silent and ModelKind.UNKNOWN in held and _may_be_wrapped(model, ctx)
    return StateCall(call, model, method, given) if may_be else None


def _is_of_optimizer(state: cst.BaseExpression, ctx: Context) -> bool:
    """`FSDP.optim_state_dict_to_load(…)`, which a loop over models and optimizers hands to what may be either."""
    return isinstance(state, cst.Call) and function_of(state, ctx) is not None


def _is_in_helper(call: cst.Call, model: set[str], ctx: PlannedContext) -> bool:
    """Whether a function of the program's own sets the kind around a call, for a model of one of these texts."""
    context = context_of(call, ctx)
    if context is None or helper_of(context, ctx) is None:
        return False
    try:
        return ctx.code(settings(context, ctx).model) in model
    except NotStatic:
        return False


def _is_gathered_above(model: cst.BaseExpression, load: cst.Call, ctx: PlannedContext) -> bool:
    """Whether the function also reads the state dict of what it loads into, and that becomes a whole one."""
    if ModelKind.UNKNOWN not in ctx.kinds(model) and not ctx.holds_parts(model):
        return False
    functions = [call.func for call in ctx.calls(ctx.scope(load)) if isinstance(call.func, cst.Attribute)]
    owners = [function.value for function in functions if function.attr.value == "state_dict"]
    same = [each for each in owners if ctx.code(each) == ctx.code(model) and ctx.same_meaning(each, load)]
    return any(
        is_gathered(each, load, ctx) or (is_kept_at_run_time(load, ctx) and _may_be_wrapped(each, ctx)) for each in same
    )


def _may_be_wrapped(model: cst.BaseExpression, ctx: PlannedContext) -> bool:
    """Whether it could be an FSDP model, whose shards would be saved without a word."""
    if not ctx.plan.migrates:
        return False
    if not _MODEL.search(ctx.code(model)) and not _is_handed_over(model, ctx) and not _is_read_as_model(model, ctx):
        return False
    if _is_wrapped_below(model, ctx) or _is_in_ddp(model, ctx):
        return False
    if _deals_in_shards(ctx.scope(model), ctx) or is_for_other_models(model, ctx):
        return False
    return not _is_wrapped_elsewhere(model, ctx)


def _is_handed_over(model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether it comes out of a queue or a future, or is looked up by `attrgetter`: any name can be a model's there."""
    if _words(model, ctx) & _OTHERS:
        return False
    made = (origin.node for origin in ctx.origins(model))
    return any(isinstance(node, cst.Call) and _hands_over(node, ctx) for node in made)


def _is_read_as_model(model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether the program set a kind of state dict around it: `for key, value in state.items():` can give the model.

    So it can where a file that deals in FSDP1 asks whether it is a module.
    """
    if not isinstance(model, cst.Name) or model.value in _SETTINGS or _words(model, ctx) & _OTHERS:
        return False
    return is_in_context(model, ctx) or (imports_wrapper(ctx) and is_asked_for(ctx, model))


def _hands_over(call: cst.Call, ctx: Context) -> bool:
    if isinstance(call.func, cst.Call):
        return ctx.dotted(call.func.func) == "operator.attrgetter"
    return isinstance(call.func, cst.Attribute) and call.func.attr.value in _HANDS_OVER and not call.args


def _deals_in_shards(function: cst.CSTNode, ctx: Context) -> bool:
    """Whether a function is written for FSDP2 already: it gathers DTensors itself."""
    calls = (node for node in ctx.inside(function) if isinstance(node, cst.Call))
    return isinstance(function, cst.FunctionDef) and any(is_attribute(call.func, "full_tensor") for call in calls)


def _is_in_ddp(model: cst.BaseExpression, ctx: Context) -> bool:
    """`model.module` of what is seen to be no FSDP model: `if isinstance(model, DDP):`."""
    is_inner = is_attribute(model, "module")
    owner = model.value if is_inner and isinstance(model, cst.Attribute) else None
    return owner is not None and not ctx.kinds(owner) & {ModelKind.FSDP, ModelKind.UNKNOWN}


_NOT_SEEN = "it cannot be seen whether this model is wrapped"


def _is_wrapped_below(model: cst.BaseExpression, ctx: PlannedContext) -> bool:
    """Whether the function wraps it further down: `net.load_state_dict(state)`, then `FSDP(net)`."""
    here, text = ctx.span(model)[0], ctx.code(model)
    below = [call for call in ctx.calls(ctx.scope(model)) if ctx.span(call)[0] > here]
    given = [call for call in below if any(ctx.code(argument.value) == text for argument in call.args)]
    return any(call in ctx.plan.wraps or _makes_it_fsdp(call, model, ctx) for call in given)


def _makes_it_fsdp(call: cst.Call, model: cst.BaseExpression, ctx: PlannedContext) -> bool:
    """Whether the call wraps the model; a function that gives back what it gets can give back one of FSDP, too."""
    if ModelKind.FSDP not in ctx.kinds(call):
        return False
    made = [origin for origin in ctx.origins(call) if origin.node in ctx.plan.wraps]
    wrapped = [(each.file, wrapped_module(cst.ensure_type(each.node, cst.Call))) for each in made]
    known = set(ctx.origins(model))
    return not made or any(module is None or known & set(where.origins(module)) for where, module in wrapped)


def _is_wrapped_elsewhere(model: cst.BaseExpression, ctx: PlannedContext) -> bool:
    """Whether the file binds a constructor call to the same text, in a method that this place does not see."""
    assignments = (ctx.parent(call) for call in ctx.nodes(cst.Call) if call in ctx.plan.wraps)
    targets = [t.target for a in assignments if isinstance(a, cst.Assign) for t in a.targets]
    return isinstance(model, cst.Attribute) and ctx.code(model) in map(ctx.code, targets)


def _of_a_part(each: Finding) -> Finding:
    level = Level.REVIEW if each.level is Level.REWRITTEN else each.level
    return replace(each, level=level, message=f"{each.message}; {UNITS_ONLY}")


def _edit(found: StateCall, ctx: PlannedContext) -> Fix | None:
    foreign = foreign_context(found.call, ctx.code(unwrapped(found.model)), ctx)
    if foreign is not None:
        return _in_foreign(found, foreign, ctx)
    if is_way_without_fsdp(found.call, ctx) or is_between_alike(found.call, ctx):
        return None
    held, at_run_time = ctx.kinds(found.model), is_kept_at_run_time(found.call, ctx)
    is_sharded = is_gathered(found.model, found.call, ctx)
    if not is_sharded and found.method == "state_dict" and is_inner_module(found.model, found.call, ctx):
        return _manual(found, ctx, "this is the module inside of the wrapper, whose state FSDP1 did not gather either")
    usual = ctx.plan.usual_settings.get(ctx.path) if setting_of(found.call, ctx) is None else None
    if usual is not None and not usual.is_full and not (is_sharded and is_on_one_rank(found.call, ctx)):
        return None  # what FSDP2 gives and takes by itself
    if not is_sharded and not at_run_time:
        if _is_right_sharded(found.call, ctx):
            return None
        if usual is not None:
            return _through_support(found, ctx, "full_state_dict", usual.full_arguments)
        context = context_of(found.call, ctx)
        if context is not None:
            return _in_context(found, context, ctx)
        if _is_of_trainer(found.model, ctx):
            return None
        return _manual(found, ctx, _NOT_SEEN) if imports_wrapper(ctx) else _unseen(found, ctx)
    if found.method == "state_dict" and not at_run_time and set_above(found.call, ctx) is None:
        if is_described(found.call, ctx):
            return None  # its names are the same, and its sizes those of the whole
    if found.method == "state_dict" and is_on_one_rank(found.call, ctx):
        return _on_one_rank(found, held, ctx)
    try:
        if _is_dcps_alone(found, at_run_time, ctx):
            return None
        if at_run_time:
            return _through_support(found, ctx)
        chosen = chosen_setting(found.call, ctx)
        if chosen is not None:
            return _read_as_chosen(found, chosen, ctx)
        if ModelKind.DDP in held and found.method == "load_state_dict":
            return _through_support(found, ctx, "load_full_state_dict")
        if ModelKind.DDP in held and not found.given:
            return _gathered(found, _settings(found, ctx), ctx)
        return _read(found, ctx) if found.method == "state_dict" else _load(found, ctx)
    except NotStatic as undecided:
        return _manual(found, ctx, str(undecided))


def _in_context(found: StateCall, context: cst.Call, ctx: PlannedContext) -> Fix | None:
    """What is not seen to be the model of the context, and may be."""
    try:
        chosen = settings(context, ctx)
    except NotStatic as undecided:
        return _manual(found, ctx, str(undecided))
    return _through_support(found, ctx, "full_state_dict", chosen.full_arguments) if chosen.is_full else None


def _in_foreign(found: StateCall, context: cst.BaseExpression, ctx: PlannedContext) -> Fix:
    """Another library's context may decide what the state dict is, and knows nothing of FSDP2."""
    model = ctx.code(found.model)
    message = f"{ctx.code(context)} is given the model, and may decide what {model}.{found.method} deals in"
    hint = "see what it does for FSDP1; where it is nothing, move the state dict out of it, and run again"
    stopped = Raise(found.call, CODE, message, found.model)
    return left(CODE, Level.MANUAL, ctx, found.call, message, hint, [stopped])


def _is_right_sharded(read: cst.Call, ctx: PlannedContext) -> bool:
    """Whether a state dict serves as it is, whatever the model is."""
    return is_saved_by_dcp(read, ctx) or is_described(read, ctx) or is_for_dcp_alone(read, ctx, is_wrapped=False)


def _is_dcps_alone(found: StateCall, at_run_time: bool, ctx: PlannedContext) -> bool:
    """Whether a state dict that may be a whole one makes the same file, or comes from it, as FSDP2 has it."""
    if not at_run_time and not _settings(found, ctx).is_full:
        return False
    if found.method == "load_state_dict":
        return len(found.given) <= 2 and comes_from_dcp(found.call, ctx)
    return not found.given and model_around(found.model, ctx) is None and is_for_dcp_alone(found.call, ctx)


def _read(found: StateCall, ctx: PlannedContext) -> Fix | None:
    if found.given:
        raise NotStatic("it takes arguments that the new function does not have")
    chosen = _settings(found, ctx)
    if ctx.wrapping.compiles(ctx.path) or adds_keys(ctx):
        # Torch's functions take the `_orig_mod.` of a compiled model out of the names, which FSDP1 left there, and
        # refuse keys that a program adds.
        is_sharded = not chosen.is_full or is_saved_by_dcp(found.call, ctx)
        return None if is_sharded else _gathered(found, chosen, ctx)
    options = "" if is_saved_by_dcp(found.call, ctx) else reading_options(found.call, chosen, ctx)
    if options is None or (options == FULL and may_alias(found.call, ctx)):
        return _through_support(found, ctx, "full_state_dict", chosen.full_arguments)
    return _rewritten(found, ctx, "get_model_state_dict", "", options)


def _read_as_chosen(found: StateCall, chosen: ChosenSetting, ctx: PlannedContext) -> Fix:
    """Whole or sharded, as the program asks where it sets the kind."""
    by_method = ctx.wrapping.compiles(ctx.path) or adds_keys(ctx)
    options = None if by_method else reading_options(found.call, chosen.full, ctx)
    if options is not None and not (options == FULL and may_alias(found.call, ctx)):
        return _rewritten(found, ctx, "get_model_state_dict", "", either(chosen.test, options, ""))
    fix = _through_support(found, ctx, "full_state_dict", chosen.full.full_arguments)
    text = f"{fix.edits[0].text} if {chosen.test} else {ctx.quote(found.model)}.state_dict()"
    is_alone = isinstance(ctx.parent(found.call), (cst.Arg, cst.Assign, cst.Return))
    return replace(fix, edits=[replace(fix.edits[0], text=text if is_alone else f"({text})")])


def _settings(found: StateCall, ctx: PlannedContext) -> Settings:
    """Those of the `set_state_dict_type` above, or what holds without one."""
    above = set_above(found.call, ctx)
    return settings(above, ctx) if above is not None else usual_or_default(found.model, ctx)


def _load(found: StateCall, ctx: PlannedContext) -> Fix | None:
    load = loading(found.call, ctx)
    state = f", {ctx.quote(load.state)}"
    if ctx.wrapping.compiles(ctx.path):
        is_sharded = not _settings(found, ctx).is_full or is_loaded_by_dcp(load.state, ctx)
        return None if is_sharded else _through_support(found, ctx, "load_full_state_dict")
    if load.is_lenient and load.result_is_used:
        # Torch reports no missing key when it broadcasts: it fills them in from the model.
        return _through_support(found, ctx, "load_full_state_dict")
    strict = f"strict={ctx.quote(load.strict.value)}" if load.strict is not None and load.is_lenient else ""
    full = "" if is_loaded_by_dcp(load.state, ctx) else _settings(found, ctx).loading
    full = options_to_load(load, found.model, full, ctx)
    is_certain = ctx.kinds(found.model) == {ModelKind.FSDP}
    if full and (has_group_of_its_own(ctx, found.model) or (not is_certain and may_run_alone(ctx, found.call))):
        return _through_support(found, ctx, "load_full_state_dict")
    if full and load.is_read_again:  # torch puts the model's own DTensors into what it loads
        state = f", dict({ctx.quote(load.state)})"
    if has_own_method(found.model, ctx):
        return _past_own_method(found, bool(full), ctx)
    fix = _rewritten(found, ctx, "set_model_state_dict", state, ", ".join(filter(None, [full, strict])))
    return _behind_evaluation(fix, found, ctx)


def _past_own_method(found: StateCall, is_full: bool, ctx: PlannedContext) -> Fix:
    """As FSDP1's wrapper loaded, which has torch's method."""
    if is_full:
        return _through_support(found, ctx, PAST_OWN)
    if ctx.kinds(found.model) != {ModelKind.FSDP}:
        raise NotStatic("its class has a load_state_dict of its own, which FSDP1 went past and a plain model does not")
    nn = ctx.named(Import("torch", "nn"), found.call)
    arguments = [ctx.quote(found.model), *(quoted_argument(ctx, argument) for argument in found.given)]
    text = f"{nn.local}.Module.load_state_dict({', '.join(arguments)})"
    message = "load_state_dict becomes that of nn.Module, as FSDP1's wrapper went past the class's own"
    return replaced(CODE, ctx, found.call, text, message, [nn])


def _behind_evaluation(fix: Fix, found: StateCall, ctx: PlannedContext) -> Fix:
    """A forward without a backward leaves the root whole, and torch would load into those copies, and raise."""
    if not isinstance(found.model, (cst.Name, cst.Attribute)) or may_be_plain(ctx, found.model):
        return fix
    if not holds_copies(found.call, found.model, ctx, trained=True):
        return fix
    lines, imports = reshards(ctx, [found.model], found.call)
    return replace(fix, edits=[insertion(ctx, found.call, lines), *fix.edits], imports=[*fix.imports, *imports])


def _rewritten(found: StateCall, ctx: PlannedContext, function: str, state: str, options: str) -> Fix:
    imports = [ctx.named(Import(DCP, function), found.call)]
    arguments = f"{ctx.quote(found.model)}{state}"
    if options:
        imports.append(ctx.named(Import(DCP, "StateDictOptions"), found.call))
        arguments += f", options={imports[1].local}({options})"
    text = f"{imports[0].local}({arguments})"
    message = f"{found.method} becomes {function}"
    return replaced(CODE, ctx, found.call, text, message, imports)


def _gathered(found: StateCall, chosen: Settings, ctx: PlannedContext) -> Fix:
    """By the support module's function that takes a sharded model, a DDP model or a plain one, and keeps the names."""
    name = "full_state_dict" if chosen.full_arguments or may_alias(found.call, ctx) else "whole_state_dict"
    return _through_support(found, ctx, name, chosen.full_arguments)


def _through_support(found: StateCall, ctx: PlannedContext, name: str = "", more: str = "") -> Fix:
    """Settings are kept at run time, or the model can be a DDP model, whose keys have to keep their prefix."""
    name = name or {"state_dict": "model_state_dict", "load_state_dict": "load_model_state_dict"}[found.method]
    if found.method == "load_state_dict":
        _check_loading(found.given)
        if name != PAST_OWN and has_own_method(found.model, ctx):
            if name != "load_full_state_dict":
                raise NotStatic("its class has a load_state_dict of its own, which FSDP1 went past")
            name = PAST_OWN
    elif found.given:
        name = "state_dict_of"
    item = ctx.named(Import(SUPPORT, name), found.call)
    arguments = [ctx.quote(found.model), *(quoted_argument(ctx, argument) for argument in found.given)]
    text = f"{item.local}({', '.join(arguments)}{more})"
    return replaced(CODE, ctx, found.call, text, f"{found.method} becomes {_said(name)}", [item])


def _said(name: str) -> str:
    """Which of the two functions that gather a program needs is seen when all of it is written."""
    return "a support function" if name in ("full_state_dict", "whole_state_dict") else f"{name}, a support function"


def _check_loading(given: Sequence[cst.Arg]) -> None:
    """Raises NotStatic for what `load_state_dict` is passed and the functions of the support module do not take."""
    known = {"state_dict", "strict"}
    named = {argument.keyword.value for argument in given if argument.keyword is not None}
    if not named <= known or len([each for each in given if each.keyword is None and not each.star]) > len(known):
        raise NotStatic("load_state_dict takes arguments that the new function does not have")


def _on_one_rank(found: StateCall, held: frozenset[ModelKind], ctx: PlannedContext) -> Fix:
    """Left as it is the call would give this rank's shards, and gathering them would wait for the other ranks.

    It raises where the model is wrapped; what may be a DDP model, or none at all, is read as before.
    """
    model = ctx.code(unwrapped(found.model))  # both branches of `model.module if … else model` are one finding
    message = f"{model}.state_dict() is read on one rank alone: gathering it would wait for the others"
    asking = [finding(CODE, Level.MANUAL, ctx, found.call, message, READ_HINT)]
    if held == {ModelKind.FSDP} or found.given:
        return Fix(findings=asking, raises=[Raise(found.call, CODE, message, found.model)])
    name = "" if is_kept_at_run_time(found.call, ctx) else "whole_state_dict"
    return replace(_through_support(found, ctx, name), findings=asking)


def _is_of_trainer(model: cst.BaseExpression, ctx: Context) -> bool:
    """`trainer.model` where a function is said to get transformers' own Trainer, which wraps its model itself."""
    function = enclosing(ctx, model, cst.FunctionDef)
    while isinstance(model, cst.Attribute):
        model = model.value
    param = parameter_named(model, function) if isinstance(model, cst.Name) and function is not None else None
    classes = ctx.annotated(param) if param is not None else ()
    return bool(classes) and all(each.startswith("transformers.") and "Trainer" in each for each in classes)


def _unseen(found: StateCall, ctx: Context) -> Fix | None:
    """In a file that does not deal in FSDP1 itself: most models there are plain, and one may be handed in unseen."""
    inner = found.model
    owner = inner.value if is_attribute(inner, "module") else inner
    if _words(owner, ctx) & _OTHERS:
        return None
    message = "what this model is, is not seen: if an FSDP model comes here, the state dict is of sharded DTensors"
    hint = f"for an FSDP model, use {_METHODS[found.method]} of torch.distributed.checkpoint.state_dict"
    return left(CODE, Level.REVIEW, ctx, found.call, message, hint)


def _words(owner: cst.BaseExpression, ctx: Context) -> set[str]:
    """What the names and keys in an expression are made of."""
    named = (node.value for node in ctx.inside(owner) if isinstance(node, (cst.Name, cst.SimpleString)))
    return {word for name in named for word in words(name.strip("'\""))}


def _manual(found: StateCall, ctx: Context, reason: str) -> Fix:
    message = f"{ctx.code(found.model)}.{found.method} deals in sharded DTensors on an FSDP2 model: {reason}"
    hint = f"use {_METHODS[found.method]} of torch.distributed.checkpoint.state_dict"
    return left(CODE, Level.MANUAL, ctx, found.call, message, hint)


RULE = Rule(CODE, "model-state-dict", __doc__, nodes=(cst.Call,), fix=fix, methods=("state_dict", "load_state_dict"))
