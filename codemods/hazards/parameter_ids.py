"""**What it does.** Finds `optimizer.load_state_dict(torch.load(...))` for the optimizer of a wrapped model, and
`optimizer.state_dict()` that comes to a `torch.save`: in a dict, by what returns it, or in a function that saves.

**Why.** FSDP1's optimizer had this rank's flat slices, under the ids of its parameters, and so has such a file. An
FSDP2 optimizer cannot go on from them: it raises when it loads them, or at its first step (torch 2.13). What an FSDP2
program saves like this are DTensors, which only as many ranks can read as wrote them, each from a file of its own.
The whole file is lost to a script without `torch.distributed.tensor`, or with a function for `map_location`: with the
model in it (measured, torch 2.13). A state that `get_state_dict` of `torch.distributed.checkpoint` read has names for
keys and whole tensors: the optimizer loads it without a word, and raises at its next step.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def resume(net, path):
    model = FSDP(net)
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.load_state_dict(torch.load(path))
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def resume(net, path):
    model = FSDP(net)
    optimizer = torch.optim.AdamW(model.parameters())
    state = FSDP.optim_state_dict_to_load(model, optimizer, torch.load(path))
    optimizer.load_state_dict(state)
```

## Fix safety

Nothing is changed. Save `FSDP.optim_state_dict(model, optimizer)` with the FSDP1 program before you migrate a run that
has to go on: such a file has the names of parameters for keys, and the rewritten program reads it. A file
whose name is made of the rank is for review: each rank finds its own part again, on as many ranks. A save that is made
under a condition about FSDP is left alone, but for the body of `if use_fsdp:`: there the program makes the difference
itself.

## References

- https://docs.pytorch.org/docs/stable/fsdp.html
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import contains, is_inside, is_self
from codemods.reading.code.shapes import called_on, class_test, comparison, receiver
from codemods.reading.code.words import last_name, words
from codemods.reading.optimizers.calls import function_of
from codemods.reading.optimizers.makers import is_optimizer
from codemods.reading.optimizers.reading import READERS as GATHERERS
from codemods.reading.parameters.of_model import holds_parameters
from codemods.reading.state_dicts.saves import is_saved, names_a_rank, save_of
from codemods.reading.state_dicts.settings import is_local
from codemods.reading.values.defaults import parameter_named
from codemods.tables.names import WRAPPER
from codemods.tables.state_dicts import CONTEXT, DCP

CODE = "FM307"


_LOADED = (
    "an optimizer state by parameter ids: FSDP1 saved flat slices, which FSDP2 cannot go on from",
    "save FSDP.optim_state_dict(model, optimizer) with the FSDP1 program first, and load that",
)
_BY_NAMES = (
    "an optimizer state by names, as torch.distributed.checkpoint gave it: the optimizer looks for ids, and its next"
    " step raises",
    "load it by set_optimizer_state_dict(model, optimizer, state, options=...) of"
    " torch.distributed.checkpoint.state_dict, with the options that it was read with",
)
_SAVED = (
    "each rank has only its own part of the optimizer's state, flat in FSDP1 and DTensors in FSDP2",
    "let all ranks call get_optimizer_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True)) of"
    " torch.distributed.checkpoint.state_dict, and one of them save that",
)
_ASKS_FOR_FSDP = re.compile(r"fsdp|ddp|shard|fully", re.IGNORECASE)


def find(ctx: PlannedContext) -> Iterator[Finding]:
    """One finding for each load of a file into an optimizer that holds a wrapped model's parameters, and each save."""
    early = ctx.plan.built_before
    for call in ctx.nodes(cst.Call):
        if not _is_found(call, ctx, early) or is_local(call, ctx):
            continue  # the rule for the context tells it
        if _is_handed_on(call, ctx) and any(
            not _is_handed_on(outer, where) and _is_found(outer, where, early) for where, outer in ctx.callers(call)
        ):
            continue  # it is told where the state is asked for
        level = Level.REVIEW if _has_a_file_for_each_rank(call, ctx) else Level.MANUAL
        if not call.args:
            told = _SAVED
        else:
            told = _BY_NAMES if _are_read_by_names(ctx) else _LOADED
        yield finding(CODE, level, ctx, call, *told)


def _are_read_by_names(ctx: Context) -> bool:
    """Whether the program reads optimizers by torch's own functions: then its files are from those."""
    return any(
        where.dotted(call.func) == f"{DCP}.{name}"
        for name in ("get_optimizer_state_dict", "get_state_dict")
        for where in ctx.files(name)
        for call in where.nodes(cst.Call)
    )


def _is_found(call: cst.Call, ctx: Context, early: Collection[cst.CSTNode]) -> bool:
    """`early`: what is built from a model's parameters before it is wrapped."""
    if not isinstance(call.func, cst.Attribute) or not _is_by_ids(call, call.func.attr.value, ctx):
        return False
    if is_inside(call, CONTEXT, ctx.code(call.func.value), ctx):
        return False  # the context says that it is the model
    has_another_way = _has_another_way(ctx) and not _is_where_fsdp_is_on(call, ctx)
    return _is_for_wrapped_model(call.func.value, ctx, has_another_way, early)


def _is_handed_on(call: cst.Call, ctx: Context) -> bool:
    """Whether an optimizer around another returns the other's state: `def state_dict(self): return self.inner…`."""
    function, holder = ctx.scope(call), ctx.parent(call)
    if not isinstance(function, cst.FunctionDef) or function.name.value != "state_dict":
        return False
    names = {ctx.code(target.target) for target in holder.targets} if isinstance(holder, cst.Assign) else set()
    returned = [node.value for node in ctx.inside(function) if isinstance(node, cst.Return) and node.value is not None]
    return any(value is call or ctx.code(value) in names for value in returned)


def _has_a_file_for_each_rank(call: cst.Call, ctx: Context) -> bool:
    """Of a load, or of the call that a state is given to."""
    taker = next((outer for outer in ctx.ancestors(call) if isinstance(outer, cst.Call)), save_of(call, ctx))
    return names_a_rank(call.args or (taker.args if taker is not None else ()), ctx)


def _is_by_ids(call: cst.Call, method: str, ctx: Context) -> bool:
    if method == "load_state_dict":
        return bool(call.args) and _is_loaded(call.args[0].value, ctx) and not _is_in_else(call, ctx)
    if method != "state_dict" or call.args:
        return False
    is_on = _is_where_fsdp_is_on(call, ctx)
    if save_of(call, ctx) is None and ((_has_another_way(ctx) and not is_on) or not is_saved(call, ctx)):
        return False
    outer = (node for node in ctx.ancestors(call) if isinstance(node, (cst.If, cst.IfExp)))
    return is_on or not any(_ASKS_FOR_FSDP.search(ctx.code(node.test)) for node in outer)


def _is_loaded(state: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a state is out of what a `torch.load` gives, in whatever file that stands.

    Not where it may be what FSDP1 made of that: `if args.fsdp: state = FSDP.optim_state_dict_to_load(…)`.
    """
    while isinstance(state, cst.Subscript) or called_on(state, "get", "pop") is not None:
        state = state.value if isinstance(state, cst.Subscript) else receiver(cst.ensure_type(state, cst.Call))
    made = [(each.file, each.node) for each in ctx.origins(state)]
    calls = [(where, node) for where, node in made if isinstance(node, cst.Call)]
    if any(function_of(node, where) is not None for where, node in calls):
        return False
    return any(where.dotted(node.func) == "torch.load" for where, node in calls)


def _is_where_fsdp_is_on(call: cst.Call, ctx: Context) -> bool:
    """Whether a save stands in the body of `if use_fsdp:`, or in the `else` of `if not use_fsdp:`."""
    for outer in ctx.ancestors(call):
        if isinstance(outer, cst.If):
            test: cst.BaseExpression = outer.test
            block: cst.CSTNode = outer.body
            if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not) and outer.orelse is not None:
                test, block = test.expression, outer.orelse
            if isinstance(test, (cst.Name, cst.Attribute)) and contains(ctx, block, call):
                if "fsdp" in words(last_name(test)):
                    return True
    return False


def _is_in_else(call: cst.Call, ctx: Context) -> bool:
    """Whether a load stands in the `else` of `if use_fsdp`, or of `isinstance(model, FSDP)`, where only a compiled FSDP
    model comes; or under `if strategy == "ddp":` with an `elif strategy == "fsdp":` below."""
    for outer in ctx.ancestors(call):
        if isinstance(outer, cst.If) and isinstance(outer.orelse, cst.If) and contains(ctx, outer.body, call):
            if _asks_for_another(outer, outer.orelse, ctx):
                return True
        if isinstance(outer, cst.If) and outer.orelse is not None and contains(ctx, outer.orelse, call):
            test = outer.test
            compared = comparison(test)
            said = compared[0] if compared is not None and isinstance(compared[1], cst.IsNot) else test
            if isinstance(said, (cst.Name, cst.Attribute)) and _ASKS_FOR_FSDP.search(ctx.code(said)):
                return True
            asked = class_test(test, ctx)
            if asked is not None and ctx.fsdp1(asked[1]) == WRAPPER:
                return not ctx.wrapping.compiles(ctx.path)
    return False


def _asks_for_another(one: cst.If, below: cst.If, ctx: Context) -> bool:
    """`strategy == "ddp"`, above `strategy == "fsdp"`."""
    asked, other = comparison(one.test), comparison(below.test)
    if asked is None or other is None or ctx.code(asked[0]) != ctx.code(other[0]):
        return False
    if not isinstance(asked[1], cst.Equal) or not isinstance(other[1], cst.Equal):
        return False
    is_fsdp = [isinstance(each, cst.SimpleString) and "fsdp" in words(each.raw_value) for each in (asked[2], other[2])]
    return isinstance(asked[2], cst.SimpleString) and is_fsdp == [False, True]


def _is_for_wrapped_model(
    optimizer: cst.BaseExpression, ctx: Context, has_another_way: bool, early: Collection[cst.CSTNode]
) -> bool:
    """Whether any of the optimizers that it can be is one of a wrapped model: the way of FSDP may make it anew."""
    for origin in ctx.origins(optimizer):
        made = origin.node
        if made is None and not has_another_way and _is_beside_wrapped_model(optimizer, ctx):
            return True
        if isinstance(made, cst.Call) and is_optimizer(origin.file, made):
            where, given = _given(origin.file, made)
            is_read = isinstance(given, cst.Call) and isinstance(given.func, cst.Attribute)
            is_of_model = is_read and where.dotted(cst.ensure_type(given, cst.Call).func) is None
            if not is_of_model and has_another_way:
                continue
            if made in early or given in early:
                return True
            is_plain = is_of_model and _is_plain_beside(optimizer, ctx, cst.ensure_type(given, cst.Call), where)
            if holds_parameters(given, where) and not is_plain:
                return True
    return False


def _given(ctx: Context, made: cst.Call) -> tuple[Context, cst.CSTNode | None]:
    """What an optimizer is made of, and the file where that stands: the one call that its name is bound to."""
    given = next((a.value for a in made.args if a.keyword is None or a.keyword.value == "params"), None)
    held = ctx.origins(given) if isinstance(given, (cst.Name, cst.Attribute)) else ()
    if len(held) == 1 and isinstance(held[0].node, cst.Call):
        return held[0].file, held[0].node
    return ctx, given


def _is_beside_wrapped_model(optimizer: cst.BaseExpression, ctx: Context) -> bool:
    """Whether an optimizer that nobody is seen to pass is saved, or loaded, with what can be a wrapped model."""
    function = ctx.scope(optimizer)
    if not isinstance(optimizer, cst.Name) or not words(optimizer.value) & {"optim", "optimizer"}:
        return False
    if not isinstance(function, cst.FunctionDef) or parameter_named(optimizer, function) is None:
        return False
    calls = [each.func for each in ctx.calls(ctx.scope(optimizer)) if isinstance(each.func, cst.Attribute)]
    models = [each.value for each in calls if each.attr.value in {"state_dict", "load_state_dict"}]
    return any(ModelKind.FSDP in ctx.kinds(each) for each in models)


def _is_plain_beside(optimizer: cst.BaseExpression, ctx: Context, given: cst.Call, where: Context) -> bool:
    """Whether a method reads `self.net` beside the optimizer of `self.net.parameters()`, and it is never wrapped there:
    the class that wraps it has a method of its own."""
    model = receiver(given)
    if not isinstance(model, cst.Attribute) or not is_self(model.value, where):
        return False
    around = [n for n in ctx.inside(ctx.scope(optimizer)) if isinstance(n, cst.Attribute)]
    same = [n for n in around if n.attr.value == model.attr.value and is_self(n.value, ctx)]
    return bool(same) and not any(ModelKind.FSDP in ctx.kinds(each) for each in same)


def _has_another_way(ctx: Context) -> bool:
    """Whether the program calls functions for sharded optimizers: then this is the way of models that are not."""
    return any(True for name in (*GATHERERS, "get_optimizer_state_dict") for _ in ctx.files(name))


CHECK = Check(CODE, "parameter-ids", __doc__, words=("load_state_dict", "state_dict"), find=find)
