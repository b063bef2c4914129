"""Where a model may have run, and not gone backward since, as far as the names of what takes it say."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.call_order import is_behind_yield, last_turns, straight, within
from codemods.reading.code.places import bound
from codemods.reading.code.words import is_name, last_name, words
from codemods.reading.forwards.after_forward import evaluates_some, ran_in_callers, trains_before
from codemods.reading.forwards.calls import (
    QUIET,
    evaluates,
    is_backward,
    is_reshard,
    makes,
    may_be_without_grad,
    may_train,
)
from codemods.reading.units.loops import units_of

_KEEPS = frozenset(
    {"save", "load", "checkpoint", "ckpt", "resume", "state", "dict", "copy", "deepcopy", "log", "print"}
)
_KEEPS |= {"ema", "average", "update", "params", "parameters", "requires", "grad", "num", "numel", "count", "len"}
_KEEPS |= {"apply", "checkpointing", "compile", "freeze", "init", "initialize", "prepare", "register", "setup"}
_KEEPS |= {"fsdp", "ddp", "shard", "parallelize", "wrap", "optimizer", "optim", "isinstance", "hasattr", "id"}
"""Words of functions that take a model and do not run it."""
_TRAINS = frozenset({"loss", "losses", "train", "training", "forward", "step"})
_DEPTH = 3
"""Callers that are followed up from where a model is a parameter."""
_QUIET_HOLDERS = (cst.AssignTarget, cst.Comparison, cst.ComparisonTarget, cst.UnaryOperation, cst.If, cst.Del, cst.Expr)


def may_be_left_whole(call: cst.Call, model: cst.BaseExpression, ctx: Context, depth: int = _DEPTH) -> bool:
    """Whether a model may have run before this call, and not gone backward since: in this function, or in its callers.

    Whatever takes the model may run it, but for what its name says does not. Of an attribute no order is known, but
    that in which a caller evaluates a model and then calls the method: `ema.restore()`.
    """
    if isinstance(model, cst.Attribute):
        is_run = any(_may_run(use, where) for where, use in ctx.attributes(model.attr.value))
        if is_run and not trains_before(call, model, ctx):
            return True
        return ran_in_callers(call, ctx.code(model), ctx, evaluates_some)
    if not isinstance(model, cst.Name):
        return False  # it was made right there
    if depth and any(may_be_left_whole(call, whole, ctx, depth - 1) for whole in units_of(model, ctx)):
        return True
    if _is_of_a_list_that_runs(model, ctx):
        return True
    scope = ctx.scope(call)
    if any(_is_whole(before, model, ctx) for before in (straight(call, ctx), *last_turns(call, ctx))):
        return True
    others = _used_elsewhere(model, ctx)
    if any(_may_run(use, ctx) and may_be_without_grad(use, ctx) for use in others):
        return True
    kept = [(where, held) for where, held in ctx.bound(model) or () if isinstance(held, cst.Attribute)]
    if any(may_be_left_whole(call, held, where) for where, held in kept):
        return True
    if not isinstance(scope, cst.FunctionDef) or not _is_parameter(model, scope):
        return False
    passed = ctx.passed_to(call, model.value)
    if is_behind_yield(call, scope, ctx) and any(_is_evaluated_within(at, given, where) for where, at, given in passed):
        return True
    return not passed or not depth or any(may_be_left_whole(at, given, where, depth - 1) for where, at, given in passed)


def _is_evaluated_within(entered: cst.Call, model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a model is evaluated in the block of `with ema_weights(model):`, or what the block runs does that."""
    return any(evaluates(call, ctx.code(model), ctx) for call in within(entered, ctx))


def _used_elsewhere(model: cst.Name, ctx: Context) -> Iterator[cst.Name]:
    """Where other functions of the file use the variable of a model."""
    values = ctx.bound(model)
    known = [where.parent(value) for where, value in values or () if where is ctx]
    made = [*known, *(_assignments_around(model, ctx) if values is None else ())]
    uses = (use for statement in made if statement is not None for use in ctx.uses(statement))
    yield from (use for use in uses if use.value == model.value and ctx.scope(use) is not ctx.scope(model))


def _assignments_around(model: cst.Name, ctx: Context) -> Iterator[cst.Assign]:
    """`encoder, target = wrap(encoder), wrap(target)` in a function around."""
    for outer in ctx.ancestors(model):
        for node in ctx.inside(outer) if isinstance(outer, cst.FunctionDef) else ():
            if isinstance(node, cst.Assign) and any(model.value in set(bound(each.target)) for each in node.targets):
                yield node


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
        if is_reshard(call) or makes(call, model.value, ctx) or (trains and is_backward(call)):
            whole = trains = False
        parts = (call.func, *(argument.value for argument in call.args))
        named = (node for part in parts for node in (part, *_owners(part)) if isinstance(node, cst.Name))
        if any(node.value == model.value and _may_run(node, ctx) for node in named):
            whole = True
            is_its_own = ctx.code(call.func) == model.value or any(words(each) & _TRAINS for each in _names(call, ctx))
            trains = trains or (is_its_own and may_train(call, ctx))
    return whole


def _owners(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    while isinstance(node, (cst.Attribute, cst.Subscript)):
        node = node.value
        yield node


def _may_run(use: cst.BaseExpression, ctx: Context) -> bool:
    """`model(x)`, `model.module.generate(x)`, `losses(model, x)`; not `save(model)`, `model.state_dict()`."""
    node: cst.CSTNode = use
    while isinstance(ctx.parent(node), (cst.Attribute, cst.Subscript)):
        node = ctx.parent(node) or node
    holder = ctx.parent(node)
    if isinstance(holder, cst.Call):  # called
        return node is use or not isinstance(node, cst.Attribute) or node.attr.value not in QUIET
    if isinstance(holder, cst.Element):  # `self.model, self.every = model, every`
        target = ctx.parent(ctx.parent(holder) or holder)
        return node is use and not isinstance(target, cst.AssignTarget)
    if not isinstance(holder, cst.Arg):
        return node is use and not isinstance(holder, _QUIET_HOLDERS)
    call = cst.ensure_type(ctx.parent(holder), cst.Call)
    return ctx.fsdp1(call.func) is None and not all(words(name) & _KEEPS for name in _names(call, ctx))


def _names(call: cst.Call, ctx: Context) -> list[str | None]:
    """What is called, by the names of its definitions: a file may import it under another."""
    made = [origin.node for origin in ctx.origins(call.func)]
    return [n.name.value for n in made if isinstance(n, (cst.FunctionDef, cst.ClassDef))] or [last_name(call.func)]
