"""Where a model runs without a backward behind it: an evaluation, a generation.

Until the next backward, `parameters()` of an FSDP2 model then has temporary copies of the root's parameters, whose
gradients are None. FSDP1 had views of the shards there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.code.call_order import is_behind_yield, last_index, last_turns, straight, within
from codemods.reading.code.left_out import is_left_out
from codemods.reading.code.words import last_name, words
from codemods.reading.forwards.behind_backward import calls_behind, leaves_whole
from codemods.reading.forwards.calls import (
    QUIET,
    evaluates,
    frees,
    is_backward,
    is_reshard,
    is_without_backward,
    may_train,
    model_of_forward,
    runs,
)

_EVALUATES = frozenset({"eval", "evaluate", "evaluation", "valid", "validate", "validation", "test"})
_EVALUATES |= {"generate", "sample", "infer", "inference", "predict"}
"""Words of functions that are not seen, and run the model that they are given."""
_EXIT = "__exit__"
_DEPTH = 3
"""Callers that are followed up from where a model is a parameter."""


def clips_after_forward(call: cst.Call, model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether the model is seen to run between the last backward and this call, all in one function.

    A backward that a condition leaves out, as for a loss that is not finite, frees nothing.
    """
    above, name = straight(call, ctx), ctx.code(model)
    backward = [index for index, other in enumerate(above) if is_backward(other)]
    return bool(backward) and any(
        runs(other, name, ctx)
        for index, other in enumerate(above)
        if all(is_left_out(above[later], (other, call), ctx) for later in backward if later > index)
    )


def reads_after_forward(call: cst.Call, model: cst.BaseExpression, ctx: Context, trained: bool = False) -> bool:
    """Whether the model is seen to run before this call, and no backward follows it there.

    For a call that only starts the training, a forward with gradients counts as well.
    """
    name = ctx.code(model)
    is_run = runs if trained else evaluates
    return any(
        is_run(other, name, ctx)
        for before in (straight(call, ctx), *last_turns(call, ctx))
        for other in before[last_index(before, frees, ctx, name) + 1 :]
    )


def holds_copies(call: cst.Call, model: cst.BaseExpression, ctx: Context, trained: bool = False) -> bool:
    """Whether the model, or the caller's, is seen to run before this call, and no backward follows."""
    if _ran_here(call, model, ctx, runs if trained else evaluates) or _ran_by_another_name(call, model, ctx):
        return True
    return ran_in_callers(call, ctx.code(model), ctx, _runs_some if trained else evaluates_some)


def runs_before(call: cst.Call, model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether the model itself, by its name here or in the callers, is seen to run before, and no backward follows."""
    return _ran_here(call, model, ctx, runs) or ran_in_callers(call, ctx.code(model), ctx, _runs_it)


def _ran_here(call: cst.Call, model: cst.BaseExpression, ctx: Context, is_run: Callable[..., bool]) -> bool:
    name = ctx.code(model)
    return any(
        is_run(other, name, ctx)
        for before in (straight(call, ctx), *last_turns(call, ctx))
        for other in calls_behind(before, name, ctx, frees, ctx, name)
    )


def trains_before(call: cst.Call, model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether the model's own backward, or a reshard, is seen before this call, and no evaluation of it in between."""
    above, name = straight(call, ctx), ctx.code(model)
    behind = last_index(above, is_backward)
    has_grad = any(runs(o, name, ctx) and may_train(o, ctx) for o in above[: max(behind, 0)])
    behind = max(last_index(above, is_reshard), behind if has_grad else -1)
    return behind >= 0 and not any(evaluates(other, name, ctx) for other in above[behind + 1 :])


def _ran_by_another_name(call: cst.Call, model: cst.BaseExpression, ctx: Context) -> bool:
    others = {ctx.code(each) for each in _other_names(model, ctx)}
    return any(
        ctx.code(other.func) == name and _is_evaluation(other, ctx)
        for name in others
        for before in (straight(call, ctx), *last_turns(call, ctx))
        for other in calls_behind(before, name, ctx, _trains, ctx)
    )


def _other_names(model: cst.BaseExpression, ctx: Context) -> Iterator[cst.BaseExpression]:
    """`model` of `inner = model.module`, `inner = getattr(model, "module", model)`, `other, model = model, other`."""
    for where, made in (ctx.bound(model) or ()) if isinstance(model, cst.Name) else ():
        if isinstance(made, cst.Call) and made.args and ctx.code(made.func) == "getattr":
            made = made.args[0].value
        elif isinstance(made, cst.Attribute) and made.attr.value == "module":
            made = made.value
        if where is ctx and isinstance(made, (cst.Name, cst.Attribute)):
            yield made
    for node in ctx.nodes(cst.Assign):
        if ctx.scope(node) is ctx.scope(model) and isinstance(node.value, cst.Tuple):
            yield from _put_into(model, node, node.value, ctx)


def _put_into(
    model: cst.BaseExpression, assignment: cst.Assign, values: cst.Tuple, ctx: Context
) -> Iterator[cst.BaseExpression]:
    """`teacher` of `student, teacher = teacher, student`, for `student`."""
    for each in assignment.targets:
        if isinstance(each.target, cst.Tuple):
            for target, value in zip(each.target.elements, values.elements, strict=False):
                if ctx.code(target.value) == ctx.code(model) and isinstance(value.value, (cst.Name, cst.Attribute)):
                    yield value.value


def ran_in_callers(
    node: cst.CSTNode, model: str, ctx: Context, is_run: Callable[..., bool], depth: int = _DEPTH
) -> bool:
    """Whether the callers of the function around a place are seen to run a wrapped model before they call it.

    The model by its name there, `trainer.model` where the method reads `self.model`, or any that is seen to be one.
    What a context manager does behind its `yield` comes after the block that enters it.
    """
    function = ctx.scope(node)
    is_behind = isinstance(function, cst.FunctionDef) and is_behind_yield(node, function, ctx)
    given = {at: where.code(value) for where, at, value in ctx.passed_to(node, model)} if model.isidentifier() else {}
    for where, call in ctx.callers(node):
        if _is_quiet(call, where):
            continue
        name = given.get(call) or _name_there(model, call, where)
        if is_behind and any(is_run(other, name, where) for other in within(call, where)):
            return True
        turns = ([call, *turn] for turn in last_turns(call, where))  # `for each in callbacks: each.run(self)`
        for before in (straight(call, where), *turns):
            if any(is_run(other, name, where) for other in calls_behind(before, name, where, _trains, where)):
                return True
        if depth and ran_in_callers(call, name, where, is_run, depth - 1):
            return True
    entered = _entered(function, ctx) if isinstance(function, cst.FunctionDef) and function.name.value == _EXIT else ()
    if any(is_run(other, model, where) for where, item in entered for other in within(item, where)):
        return True
    return _ran_before_it_is_read(function, model, ctx, is_run)


def _entered(function: cst.FunctionDef, ctx: Context) -> Iterator[tuple[Context, cst.BaseExpression]]:
    """What `with frozen(model):` enters, an object of the class that a method is of."""
    owner = ctx.scope(function)
    for where, call in ctx.called_as_named(owner) if isinstance(owner, cst.ClassDef) else ():
        items = (item.item for block in where.nodes(cst.With) for item in block.items)
        yield from ((where, each) for each in items if any(o.node is call for o in where.origins(each)))


def _ran_before_it_is_read(function: cst.CSTNode, model: str, ctx: Context, is_run: Callable[..., bool]) -> bool:
    """Whether a property is read behind a run of its object's model: `self.optimizer`, which is made where it is first
    asked for.
    """
    if not isinstance(function, cst.FunctionDef) or not any(map(_is_property, function.decorators)):
        return False
    for where, read in ctx.attributes(function.name.value):
        name = f"{where.code(read.value)}.{model.removeprefix('self.')}"
        before = [each for each in where.calls(where.scope(read)) if where.span(each)[1] <= where.span(read)[0]]
        if any(is_run(other, name, where) for other in calls_behind(before, name, where, _trains, where)):
            return True
    return False


def _is_property(decorator: cst.Decorator) -> bool:
    return last_name(decorator.decorator) in {"cached_property", "property"}


def _is_quiet(call: cst.Call, ctx: Context) -> bool:
    """`model.train()`, which is no call of the trainer's method of that name."""
    is_method = isinstance(call.func, cst.Attribute) and call.func.attr.value in QUIET
    return is_method and isinstance(call.func, cst.Attribute) and ModelKind.FSDP in ctx.kinds(call.func.value)


def _name_there(model: str, call: cst.Call, ctx: Context) -> str:
    _, dot, rest = model.partition(".")
    return f"{ctx.code(call.func.value)}.{rest}" if dot and isinstance(call.func, cst.Attribute) else model


def _trains(call: cst.Call, ctx: Context) -> bool:
    """Whether a call goes backward, or reshards, itself or in the function that it runs."""
    if is_backward(call) or is_reshard(call):
        return True
    return any(is_backward(each) for where, function in ctx.runs(call) for each in where.calls(function))


def evaluates_some(call: cst.Call, model: str, ctx: Context) -> bool:
    """Whether a call, or what the function of the program that it runs calls, is a forward without gradients.

    Of a function that is not seen, its name says so.
    """
    run = ctx.runs(call)
    if leaves_whole(call, model, ctx):
        return True
    if _is_evaluation(call, ctx) or any(_is_evaluation(each, where) for where, f in run for each in where.calls(f)):
        return True
    names = [model, *(ctx.code(each.value) for each in call.args if ModelKind.FSDP in ctx.kinds(each.value))]
    is_given = any(ctx.code(each.value) in names for each in call.args)
    return is_given and not run and bool(words(last_name(call.func)) & _EVALUATES)


def _runs_it(call: cst.Call, model: str, ctx: Context) -> bool:
    """Whether a call runs the model of this name, and what has that name there is seen to be wrapped."""
    if not runs(call, model, ctx):
        return False
    named = (node for node in ctx.inside(call) if isinstance(node, (cst.Name, cst.Attribute)))
    return all(ModelKind.FSDP in ctx.kinds(node) for node in named if ctx.code(node) == model)


def _runs_some(call: cst.Call, model: str, ctx: Context) -> bool:
    """The same with gradients; not a method of what may be anything, `folder.mkdir()`."""
    ran = model_of_forward(call, ctx)
    is_run = ran is not None and (ran is call.func or ModelKind.UNKNOWN not in ctx.kinds(ran))
    return is_run or evaluates_some(call, model, ctx)


def _is_evaluation(call: cst.Call, ctx: Context) -> bool:
    return model_of_forward(call, ctx) is not None and is_without_backward(call, ctx)
