"""Where a model runs without a backward behind it: an evaluation, a generation.

Until the next backward, `parameters()` of an FSDP2 model then has temporary copies of the root's parameters, whose
gradients are None. FSDP1 had views of the shards there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.freezes import is_frozen_here
from codemods.reading.places import bound
from codemods.reading.program import sets_attribute
from codemods.reading.shapes import is_attribute, parameter_names
from codemods.reading.words import is_name, last_name, words

# Methods of a model that do not run it.
QUIET = frozenset({"parameters", "named_parameters", "modules", "named_modules", "named_buffers", "buffers"})
QUIET |= {"children", "named_children", "train", "eval", "requires_grad_", "zero_grad", "no_sync", "clip_grad_norm_"}
QUIET |= {"state_dict", "load_state_dict", "compile", "dynamo_ctx", "apply"}
QUIET |= {"to", "to_empty", "cuda", "cpu", "float", "half", "bfloat16", "double"}
QUIET |= {"get_submodule", "get_parameter", "get_buffer", "register_buffer", "register_comm_hook"}
QUIET |= {"register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"}
# The same of transformers and peft.
QUIET |= {"gradient_checkpointing_enable", "gradient_checkpointing_disable", "enable_input_require_grads"}
QUIET |= {"resize_token_embeddings", "tie_weights", "post_init", "get_input_embeddings", "get_output_embeddings"}
QUIET |= {"print_trainable_parameters", "init_weights", "reset_parameters", "num_parameters", "get_num_params"}
QUIET |= {"save_pretrained", "push_to_hub", "merge_adapter", "unmerge_adapter", "set_adapter", "add_adapter"}
_KEEPS = frozenset(
    {"save", "load", "checkpoint", "ckpt", "resume", "state", "dict", "copy", "deepcopy", "log", "print"}
)
_KEEPS |= {"ema", "average", "update", "params", "parameters", "requires", "grad", "num", "numel", "count", "len"}
_KEEPS |= {"apply", "checkpointing", "compile", "freeze", "init", "initialize", "prepare", "register", "setup"}
_KEEPS |= {"fsdp", "ddp", "shard", "parallelize", "wrap", "optimizer", "optim", "isinstance", "hasattr", "id"}
"""Words of functions that take a model and do not run it."""
_TRAINS = frozenset({"loss", "losses", "train", "training", "forward", "step"})
_EVALUATES = frozenset({"eval", "evaluate", "evaluation", "valid", "validate", "validation", "test"})
_EVALUATES |= {"generate", "sample", "infer", "inference", "predict"}
"""Words of functions that are not seen, and run the model that they are given."""
_DEPTH = 3
"""Callers that are followed up from where a model is a parameter."""
_RUNS = re.compile(r"eval|valid|test|generate|sample|infer|predict|forward", re.IGNORECASE)
_BACKWARD = re.compile(r"backward\w*$")
_RESHARD = re.compile(r"\breshard(?!_after_\w+)\w*$")
GRAD_MODES = ("no_grad", "inference_mode", "set_grad_enabled")
"""Words of a program that runs some of its forwards without gradients."""
_NO_GRAD = re.compile(r"no_grad|inference_mode|set_grad_enabled\(False\)")
_MAY_BE_NO_GRAD = re.compile(r"no_grad|inference_mode|set_grad_enabled\((?!True\))")


def clips_after_forward(call: cst.Call, model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether the model is seen to run between the last backward and this call, all in one function."""
    above = _straight(call, ctx)
    behind = _last(above, _is_backward, ctx)
    return behind >= 0 and any(runs(other, ctx.code(model), ctx) for other in above[behind + 1 :])


def reads_after_forward(call: cst.Call, model: cst.BaseExpression, ctx: Context, trained: bool = False) -> bool:
    """Whether the model is seen to run before this call, and no backward follows it there.

    For a call that only starts the training, a forward with gradients counts as well.
    """
    name = ctx.code(model)
    is_run = runs if trained else _evaluates
    return any(
        is_run(other, name, ctx)
        for before in (_straight(call, ctx), *_last_turns(call, ctx))
        for other in before[_last(before, _frees, ctx, name) + 1 :]
    )


def holds_copies(call: cst.Call, model: cst.BaseExpression, ctx: Context, trained: bool = False) -> bool:
    """Whether the model, or the caller's, is seen to run before this call, and no backward follows."""
    name, is_run = ctx.code(model), runs if trained else _evaluates
    seen = any(
        is_run(other, name, ctx)
        for before in (_straight(call, ctx), *_last_turns(call, ctx))
        for other in _behind(before, name, ctx, _frees, ctx, name)
    )
    if seen or _ran_by_another_name(call, model, ctx):
        return True
    return _ran_in_callers(call, name, ctx, _runs_some if trained else _evaluates_some)


def _ran_by_another_name(call: cst.Call, model: cst.BaseExpression, ctx: Context) -> bool:
    others = {ctx.code(each) for each in _other_names(model, ctx)}
    return any(
        ctx.code(other.func) == name and _is_evaluation(other, ctx)
        for name in others
        for before in (_straight(call, ctx), *_last_turns(call, ctx))
        for other in _behind(before, name, ctx, _trains, ctx)
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


def _ran_in_callers(
    node: cst.CSTNode, model: str, ctx: Context, is_run: Callable[..., bool], depth: int = _DEPTH
) -> bool:
    """Whether the callers of the function around a place are seen to run a wrapped model before they call it.

    The model by its name there, `trainer.model` where the method reads `self.model`, or any that is seen to be one.
    What a context manager does behind its `yield` comes after the block that enters it.
    """
    function = ctx.scope(node)
    is_behind = isinstance(function, cst.FunctionDef) and _is_behind_yield(node, function, ctx)
    given = {at: where.code(value) for where, at, value in ctx.passed_to(node, model)} if model.isidentifier() else {}
    for where, call in ctx.callers(node):
        if _is_quiet(call, where):
            continue
        name = given.get(call) or _name_there(model, call, where)
        if is_behind and any(is_run(other, name, where) for other in _within(call, where)):
            return True
        turns = ([call, *turn] for turn in _last_turns(call, where))  # `for each in callbacks: each.run(self)`
        for before in (_straight(call, where), *turns):
            if any(is_run(other, name, where) for other in _behind(before, name, where, _trains, where)):
                return True
        if depth and _ran_in_callers(call, name, where, is_run, depth - 1):
            return True
    return _ran_before_it_is_read(function, model, ctx, is_run)


def _ran_before_it_is_read(function: cst.CSTNode, model: str, ctx: Context, is_run: Callable[..., bool]) -> bool:
    """Whether a property is read behind a run of its object's model: `self.optimizer`, which is made where it is first
    asked for.
    """
    if not isinstance(function, cst.FunctionDef) or not any(_is_property(each, ctx) for each in function.decorators):
        return False
    for where, read in ctx.attributes(function.name.value):
        name = f"{where.code(read.value)}.{model.removeprefix('self.')}"
        before = [call for call in where.calls(where.scope(read)) if _is_above(call, read, where)]
        if any(is_run(other, name, where) for other in _behind(before, name, where, _trains, where)):
            return True
    return False


def _is_property(decorator: cst.Decorator, ctx: Context) -> bool:
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
    if _is_backward(call, ctx) or _is_reshard(call, ctx):
        return True
    return any("backward" in where.code(function.body) for where, function in ctx.runs(call))


def _evaluates_some(call: cst.Call, model: str, ctx: Context) -> bool:
    """Whether a call, or what the function of the program that it runs calls, is a forward without gradients.

    Of a function that is not seen, its name says so.
    """
    runs = ctx.runs(call)
    if _leaves_whole(call, model, ctx):
        return True
    if _is_evaluation(call, ctx) or any(_is_evaluation(each, where) for where, f in runs for each in where.calls(f)):
        return True
    names = [model, *(ctx.code(each.value) for each in call.args if ModelKind.FSDP in ctx.kinds(each.value))]
    is_given = any(ctx.code(each.value) in names for each in call.args)
    return is_given and not runs and bool(words(last_name(call.func)) & _EVALUATES)


def _runs_some(call: cst.Call, model: str, ctx: Context) -> bool:
    return model_of_forward(call, ctx) is not None or _evaluates_some(call, model, ctx)


def _is_evaluation(call: cst.Call, ctx: Context) -> bool:
    return model_of_forward(call, ctx) is not None and _is_without_backward(call, ctx)


def trains_before(call: cst.Call, model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether the model's own backward, or a reshard, is seen before this call, and no evaluation of it in between."""
    above, name = _straight(call, ctx), ctx.code(model)
    behind = _last(above, _is_backward, ctx)
    has_grad = any(runs(o, name, ctx) and not _may_be_without_grad(o, ctx) for o in above[: max(behind, 0)])
    behind = max(_last(above, _is_reshard, ctx), behind if has_grad else -1)
    return behind >= 0 and not any(_evaluates(other, name, ctx) for other in above[behind + 1 :])


def may_be_left_whole(call: cst.Call, model: cst.BaseExpression, ctx: Context, depth: int = _DEPTH) -> bool:
    """Whether a model may have run before this call, and not gone backward since: in this function, or in its callers.

    Whatever takes the model may run it, but for what its name says does not. Of an attribute no order is known, but
    that in which a caller evaluates a model and then calls the method: `ema.restore()`.
    """
    if isinstance(model, cst.Attribute):
        is_run = any(_may_run(use, where) for where, use in ctx.attributes(model.attr.value))
        if is_run and not trains_before(call, model, ctx):
            return True
        return _ran_in_callers(call, ctx.code(model), ctx, _evaluates_some)
    if not isinstance(model, cst.Name):
        return False  # it was made right there
    if _is_of_a_list_that_runs(model, ctx):
        return True
    scope = ctx.scope(call)
    if any(_is_whole(before, model, ctx) for before in (_straight(call, ctx), *_last_turns(call, ctx))):
        return True
    others = _used_elsewhere(model, ctx)
    if any(_may_run(use, ctx) and _may_be_without_grad(use, ctx) for use in others):
        return True
    kept = [(where, held) for where, held in ctx.bound(model) or () if isinstance(held, cst.Attribute)]
    if any(may_be_left_whole(call, held, where) for where, held in kept):
        return True
    if not isinstance(scope, cst.FunctionDef) or not _is_parameter(model, scope):
        return False
    passed = ctx.passed_to(call, model.value)
    if _is_behind_yield(call, scope, ctx) and any(
        _is_evaluated_within(at, given, where) for where, at, given in passed
    ):
        return True
    return not passed or not depth or any(may_be_left_whole(at, given, where, depth - 1) for where, at, given in passed)


def _is_behind_yield(call: cst.CSTNode, function: cst.FunctionDef, ctx: Context) -> bool:
    """Whether a context manager comes here when its block is left."""
    yields = [node for node in ctx.inside(function.body) if isinstance(node, cst.Yield) and ctx.scope(node) is function]
    return any(ctx.span(each)[1] <= ctx.span(call)[0] for each in yields)


def _is_evaluated_within(entered: cst.Call, model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a model is evaluated in the block of `with ema_weights(model):`, or what the block runs does that."""
    return any(_evaluates(call, ctx.code(model), ctx) for call in _within(entered, ctx))


def _within(entered: cst.Call, ctx: Context) -> Iterator[cst.Call]:
    """The calls in the block of `with entered(…):`."""
    blocks = [outer for outer in ctx.ancestors(entered) if isinstance(outer, cst.With)]
    around = [block for block in blocks if any(item.item is entered for item in block.items)]
    yield from (node for block in around for node in ctx.inside(block.body) if isinstance(node, cst.Call))


def _used_elsewhere(model: cst.Name, ctx: Context) -> Iterator[cst.Name]:
    """Where other functions of the file use the variable of a model."""
    for where, made in ctx.bound(model) or ():
        statement = where.parent(made)
        if where is ctx and statement is not None:
            yield from (use for use in ctx.uses(statement) if ctx.scope(use) is not ctx.scope(model))


def _is_of_a_list_that_runs(model: cst.Name, ctx: Context) -> bool:
    """`target` of `for net, target in zip(self.nets, self.targets)`, where another loop over `self.targets` runs them.

    By a name of its own: the same is found where it is called.
    """
    lists = {ctx.code(each) for outer in ctx.ancestors(model) for each in _gone_over(outer, model.value)}
    loops: list[cst.For | cst.CompFor] = [*ctx.nodes(cst.For), *ctx.nodes(cst.CompFor)]
    for loop in loops:
        if ctx.code(loop.iter) in lists and isinstance(loop.target, cst.Name):
            around = loop if isinstance(loop, cst.For) else ctx.parent(loop)
            named = [node for node in ctx.inside(around or loop) if is_name(node, loop.target.value)]
            if any(isinstance(holder := ctx.parent(each), cst.Call) and holder.func is each for each in named):
                return True
    return False


def _gone_over(loop: cst.CSTNode, name: str) -> Iterator[cst.BaseExpression]:
    """The lists that a loop goes over side by side, if it binds a name so."""
    if isinstance(loop, cst.For) and isinstance(loop.target, cst.Tuple) and isinstance(loop.iter, cst.Call):
        if name in bound(loop.target):
            yield from (argument.value for argument in loop.iter.args)


def _is_parameter(name: cst.Name, function: cst.FunctionDef) -> bool:
    params = (*function.params.posonly_params, *function.params.params, *function.params.kwonly_params)
    return any(each.name.value == name.value for each in params)


def _is_whole(before: list[cst.Call], model: cst.Name, ctx: Context) -> bool:
    """Whether the last that may run the model, of calls in order, is not followed by its own backward."""
    whole = trains = False
    for call in before:
        if _is_reshard(call, ctx) or _makes(call, model.value, ctx) or (trains and _is_backward(call, ctx)):
            whole = trains = False
        parts = (call.func, *(argument.value for argument in call.args))
        named = (node for part in parts for node in (part, *_owners(part)) if isinstance(node, cst.Name))
        if any(node.value == model.value and _may_run(node, ctx) for node in named):
            whole = True
            is_its_own = ctx.code(call.func) == model.value or any(words(each) & _TRAINS for each in _names(call, ctx))
            trains = trains or (is_its_own and not _may_be_without_grad(call, ctx))
    return whole


def _owners(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    while isinstance(node, (cst.Attribute, cst.Subscript)):
        node = node.value
        yield node


_QUIET_HOLDERS = (cst.AssignTarget, cst.Comparison, cst.ComparisonTarget, cst.UnaryOperation, cst.If, cst.Del, cst.Expr)


def _may_run(use: cst.BaseExpression, ctx: Context) -> bool:
    """`model(x)`, `model.module.generate(x)`, `losses(model, x)`; not `save(model)`, `model.state_dict()`."""
    node: cst.CSTNode = use
    while isinstance(ctx.parent(node), (cst.Attribute, cst.Subscript)):
        node = ctx.parent(node) or node
    holder = ctx.parent(node)
    if isinstance(holder, cst.Call):  # called
        return node is use or not isinstance(node, cst.Attribute) or node.attr.value not in QUIET
    if not isinstance(holder, cst.Arg):
        return node is use and not isinstance(holder, _QUIET_HOLDERS)
    call = cst.ensure_type(ctx.parent(holder), cst.Call)
    return ctx.fsdp1(call.func) is None and not all(words(name) & _KEEPS for name in _names(call, ctx))


def _names(call: cst.Call, ctx: Context) -> list[str | None]:
    """What is called, by the names of its definitions: a file may import it under another."""
    made = [origin.node for origin in ctx.origins(call.func)]
    return [n.name.value for n in made if isinstance(n, (cst.FunctionDef, cst.ClassDef))] or [last_name(call.func)]


def _straight(call: cst.Call, ctx: Context) -> list[cst.Call]:
    """The calls that have ended before this one, in a function that is run from its start; the last one last."""
    start = ctx.span(call)[0]
    return [other for other in _in_order(call, ctx) if ctx.span(other)[1] <= start]


def _last_turns(call: cst.Call, ctx: Context) -> Iterator[list[cst.Call]]:
    """For each loop around a call: what ran before it since it last ran. The end of a body lies before its start."""
    start, end = ctx.span(call)
    for loop in ctx.ancestors(call):
        if isinstance(loop, (cst.FunctionDef, cst.Lambda)):
            return
        if isinstance(loop, (cst.For, cst.While)) and ctx.span(loop.body)[0] <= start:
            first, last = ctx.span(loop.body)
            spans = [(other, *ctx.span(other)) for other in _in_order(call, ctx)]
            inside = [other for other, begins, ends in spans if first <= begins and ends <= last]
            behind = [other for other in inside if ctx.span(other)[0] >= end]
            yield [*behind, *(other for other in inside if ctx.span(other)[1] <= start)]


def _in_order(call: cst.Call, ctx: Context) -> list[cst.Call]:
    """The calls of the function that a run can come to which comes to this one."""
    calls = (other for other in ctx.calls(ctx.scope(call)) if not ctx.excludes(call, other))
    return sorted(calls, key=lambda other: ctx.span(other)[1])


def _behind(
    calls: list[cst.Call], model: str, ctx: Context, is_one: Callable[..., bool], *given: object
) -> list[cst.Call]:
    """The calls behind the last that frees what the model has left whole.

    Not the backward of another one, `loss.backward()` behind `with torch.no_grad(): target = model(x)`.
    """
    for index in range(len(calls) - 1, -1, -1):
        if is_one(calls[index], *given) and not _ran_without_grad(calls[: index + 1], model, ctx):
            return calls[index + 1 :]
    return calls


def _ran_without_grad(calls: list[cst.Call], model: str, ctx: Context) -> bool:
    """Whether the last of some calls that can run the model runs it without gradients."""
    owner = model.rpartition(".")[0]
    for call in reversed(calls):
        state = _leaves_whole(call, model, ctx)
        if state is not None:
            return state
        is_given = any(ctx.code(argument.value) == model for argument in call.args)
        is_method = isinstance(call.func, cst.Attribute) and ctx.code(call.func.value) == owner
        is_another = ModelKind.FSDP in ctx.kinds(call.func) or _is_of_model(call, model, ctx)
        if is_given or (is_method and not is_another) or runs(call, model, ctx):
            return False
    return False


def _leaves_whole(call: cst.Call, model: str, ctx: Context, depth: int = _DEPTH) -> bool | None:
    """Whether a call's last run of the model is one without gradients; None where no run is seen."""
    if _is_of_model(call, model, ctx):
        is_run = runs(call, model, ctx) and not _is_of_plain(call, model, ctx)
        return _is_without_backward(call, ctx) if is_run else None
    for where, function in ctx.runs(call) if depth else ():
        name = _name_given(model, call, function, ctx)
        if not name and where is ctx and _reads(function, model, ctx):
            name = model
        calls = sorted(where.calls(function), key=lambda each: -where.span(each)[1]) if name else ()
        for inner in calls:
            state = _leaves_whole(inner, name, where, depth - 1)
            if state is not None:
                return state or _may_be_without_grad(call, ctx)
    return None


def _is_of_model(call: cst.Call, model: str, ctx: Context) -> bool:
    """`model(x)`, and what is called on it."""
    function = ctx.code(call.func)
    return function == model or function.startswith(f"{model}.")


def _is_of_plain(call: cst.Call, model: str, ctx: Context) -> bool:
    """Whether what a call is of is seen to be no FSDP model: another program's may have the same name."""
    owner = call.func
    while isinstance(owner, cst.Attribute) and ctx.code(owner) != model:
        owner = owner.value
    return ctx.kinds(owner).isdisjoint({ModelKind.FSDP, ModelKind.UNKNOWN})


def _name_given(model: str, call: cst.Call, function: cst.FunctionDef, ctx: Context) -> str:
    """What the function calls the model that it is given, or that its object has: `self.model`; "" where neither is."""
    owner, _, rest = model.rpartition(".")
    if owner and isinstance(call.func, cst.Attribute) and ctx.code(call.func.value) == owner:
        return f"self.{rest}"
    params = _given_names(function)
    for index, argument in enumerate(call.args):
        if ctx.code(argument.value) == model:
            if argument.keyword is not None:
                return argument.keyword.value
            return params[index] if index < len(params) else ""
    return ""


def _given_names(function: cst.FunctionDef) -> list[str]:
    """The parameters that a call gives, by their order."""
    return [name for name in parameter_names(function) if name != "self"]


def _reads(function: cst.FunctionDef, model: str, ctx: Context) -> bool:
    """Whether a function reads a variable of the function around, or of the file."""
    if not model.isidentifier() or model in {*parameter_names(function), *map(ctx.code, _bound_in(function, ctx))}:
        return False
    return any(is_name(node, model) for node in ctx.inside(function.body))


def _bound_in(function: cst.FunctionDef, ctx: Context) -> Iterator[cst.BaseExpression]:
    return (each.target for each in _targets(function, ctx))


def _last(calls: list[cst.Call], is_one: Callable[..., bool], *given: object) -> int:
    """The place of the last of some calls that is one; -1 without one."""
    return max((index for index, call in enumerate(calls) if is_one(call, *given)), default=-1)


def _is_backward(call: cst.Call, ctx: Context) -> bool:
    return _BACKWARD.search(ctx.code(call.func)) is not None


def _is_reshard(call: cst.Call, ctx: Context) -> bool:
    return _RESHARD.search(ctx.code(call.func)) is not None


def _frees(call: cst.Call, ctx: Context, model: str) -> bool:
    """Whether no copies of a model's parameters are left behind a call."""
    return _is_backward(call, ctx) or _is_reshard(call, ctx) or _makes(call, model, ctx)


def _makes(call: cst.Call, model: str, ctx: Context) -> bool:
    """Whether the model gets its value by a call: what ran before was not sharded yet."""
    if ctx.dotted(call.func) == "torch.compile" or ctx.code(call.func).startswith(f"{model}."):
        return False  # the same model
    assignment = ctx.parent(call)
    return isinstance(assignment, cst.Assign) and any(ctx.code(each.target) == model for each in assignment.targets)


def _evaluates(call: cst.Call, model: str, ctx: Context) -> bool:
    """A run of the model; `model(x)` itself only where it is seen that no backward follows."""
    if ctx.code(call.func) != model:
        return runs(call, model, ctx)
    return _is_without_backward(call, ctx)


def _is_without_backward(call: cst.Call, ctx: Context) -> bool:
    """Whether no backward can follow a run: under `no_grad`, or `model(x).detach()`."""
    return is_attribute(ctx.parent(call), "detach") or _may_be_without_grad(call, ctx)


def is_without_grad(around: Iterable[cst.CSTNode], ctx: Context) -> bool:
    """Whether one of these nodes is a block or a function under `no_grad` or `inference_mode`."""
    heads = [getattr(node, "items", ()) or getattr(node, "decorators", ()) for node in around]
    return any(_NO_GRAD.search(ctx.code(each)) for head in heads for each in head)


def _may_be_without_grad(node: cst.CSTNode, ctx: Context) -> bool:
    """The same of a node, also where a switch chooses, `set_grad_enabled(is_training)`, below it as a statement, and
    where a frozen model runs, `teacher(x)`.
    """
    heads = [getattr(outer, "items", ()) or getattr(outer, "decorators", ()) for outer in ctx.ancestors(node)]
    if any(_MAY_BE_NO_GRAD.search(ctx.code(each)) for head in heads for each in head):
        return True
    if isinstance(node, cst.Call) and is_frozen_here(ctx.code(node.func), ctx):
        return True
    if not ctx.mentions("set_grad_enabled"):
        return False
    calls = (each for each in ctx.calls(ctx.scope(node)) if last_name(each.func) == "set_grad_enabled")
    above = [each for each in calls if isinstance(ctx.parent(each), cst.Expr) and _is_above(each, node, ctx)]
    return bool(above) and _MAY_BE_NO_GRAD.search(ctx.code(above[-1])) is not None


def _is_above(one: cst.CSTNode, other: cst.CSTNode, ctx: Context) -> bool:
    return ctx.span(one)[1] <= ctx.span(other)[0]


def model_of_forward(call: cst.Call, ctx: Context) -> cst.BaseExpression | None:
    """The wrapped model of `model(x)` and `model.generate(x)`."""
    function = call.func
    if not isinstance(function, (cst.Name, cst.Attribute)):
        return None
    if ModelKind.FSDP in ctx.kinds(function):
        return function
    if isinstance(function, cst.Name) or function.attr.value in QUIET or ctx.dotted(function) is not None:
        return None
    return function.value if ModelKind.FSDP in ctx.kinds(function.value) else None


def runs(call: cst.Call, model: str, ctx: Context) -> bool:
    """`model(x)`, `model.generate(x)`, `evaluate(model)`, `self.evaluate()` for `self.model`."""
    function = ctx.code(call.func)
    if function == model:
        return True
    if isinstance(call.func, cst.Attribute) and ctx.code(call.func.value) == model:
        return call.func.attr.value not in QUIET
    is_method = isinstance(call.func, cst.Attribute) and model.startswith(f"{ctx.code(call.func.value)}.")
    given = [argument for argument in call.args if ctx.code(argument.value) == model]
    origins = [(o.file, o.node) for o in (ctx.origins(call.func) if given else ())]
    classes = [(where, node) for where, node in origins if isinstance(node, cst.ClassDef)]
    if classes:
        inits = [(where, each) for where, node in classes for each in node.body.body if _is_init(each)]
        return any(_calls(cst.ensure_type(init, cst.FunctionDef), given, call, where) for where, init in inits)
    if (given or is_method) and _RUNS.search(function.rsplit(".", 1)[-1]):
        return True
    if given:
        return any(_calls(definition, given, call, where) for where, definition in ctx.runs(call))
    is_function = model.isidentifier() and isinstance(call.func, cst.Name)
    return is_function and any(where is ctx and _calls_own(f, model, ctx) for where, f in ctx.runs(call))


def _is_init(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.FunctionDef) and node.name.value == "__init__"


def _calls_own(function: cst.FunctionDef, model: str, ctx: Context) -> bool:
    """Whether a function calls a model of the file, or of the function around, and does not go backward itself."""
    calls = [node for node in ctx.inside(function.body) if isinstance(node, cst.Call)]
    bound_there = {*parameter_names(function), *map(ctx.code, _bound_in(function, ctx))}
    if model in bound_there or any(_is_backward(call, ctx) for call in calls):
        return False
    return any(isinstance(call.func, cst.Name) and call.func.value == model for call in calls)


def _targets(function: cst.FunctionDef, ctx: Context) -> Iterator[cst.AssignTarget]:
    return (node for node in ctx.inside(function.body) if isinstance(node, cst.AssignTarget))


def _calls(function: cst.FunctionDef, given: list[cst.Arg], call: cst.Call, ctx: Context) -> bool:
    """Whether a function of the program calls the model that it is given, and does not go backward itself."""
    params = _given_names(function)
    if len(params) < len(call.args):
        return False
    names = [a.keyword.value if a.keyword is not None else params[call.args.index(a)] for a in given]
    text = ctx.code(function.body)
    return "backward" not in text and any(re.search(rf"(?<![\w.]){name}\(", text) for name in names)


# Models without a `forward`, whose children are called through methods: the model itself never runs.

_BASES = 8
"""How many classes, each the base of the one before, are looked at."""
_PLAIN = frozenset({"torch.nn.Module", "torch.nn.modules.module.Module", "abc.ABC", "typing.Generic"})
_CALLED = frozenset({"__call__", "__getattr__", "forward"})


def lacks_forward(ctx: Context, made: cst.Call) -> bool:
    """Whether what a call makes is seen to be of a class without one, and is given none."""
    return not sets_attribute(ctx, "forward") and _lacks_forward(ctx, made.func, _BASES)


def _lacks_forward(ctx: Context, node: cst.BaseExpression, depth: int) -> bool:
    classes = [(origin.file, origin.node) for origin in ctx.origins(node)]
    return bool(classes and depth) and all(
        isinstance(each, cst.ClassDef)
        and not any(_gives_forward(inner) for inner in where.inside(each.body))
        and all(_is_plain(where, base.value) or _lacks_forward(where, base.value, depth - 1) for base in each.bases)
        for where, each in classes
    )


def _is_plain(ctx: Context, base: cst.BaseExpression) -> bool:
    return ctx.dotted(base.value if isinstance(base, cst.Subscript) else base) in _PLAIN


def _gives_forward(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.FunctionDef):
        return node.name.value in _CALLED
    return isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Name) and node.target.value == "forward"
