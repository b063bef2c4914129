"""**What it does.** Puts `model.reshard()` in front of statements that take a model's parameters after an evaluation;
`reshard_all(model)` of the support module where more than the root can be whole.

**Why.** After a forward without a backward, FSDP2 leaves the root's parameters whole: until the next backward or
`reshard()`, `model.parameters()` has temporary copies of them, without gradients. `model.zero_grad()` leaves the root's
gradients as they are then, an optimizer that is built there never updates 4 of 16 parameters, and what is written to
the copies is lost, all without an error (torch 2.13). FSDP1 had its own parameters there.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def prepare(net, batch):
    model = FSDP(net)
    with torch.no_grad():
        model(batch)
    return model, torch.optim.AdamW(model.parameters())
```

## Use instead

```python
import torch
from torch.distributed.fsdp import fully_shard


def prepare(net, batch):
    model = fully_shard(net)
    with torch.no_grad():
        model(batch)
    model.reshard()
    return model, torch.optim.AdamW(model.parameters())
```

## Fix safety

What sets `requires_grad` on the copies is lost as well: what freezes a model behind its evaluation, or a part of it, is
treated alike, and so is an optimizer that is made of parts. Here callers are asked too for an evaluation.

The same parameters as under FSDP1, and for a loop that writes to them better ones: FSDP1 went on with stale weights
of its root in the next forward, so that is reported. An evaluation is seen in the same function for the rest, and for
`model.zero_grad()`, which mostly stands in a loop, supposed wherever the program has forwards without gradients.
Between a forward and its backward `model.zero_grad()` needs the same, and in a program with evaluations so does a loop
that writes to parameters, or to a dict of them by name, of a model that may have run since its own last backward, such
as an average, and `update_parameters` of torch's `AveragedModel`: FSDP2 raises there. Whether it may is asked of the
function and of its callers; what takes the model runs it, but for what is named after saving, loading, averaging or
the like. An optimizer with a `train()` of its own, which puts other weights into the model behind an evaluation, is
reported: both take the root's weights from before in the next forward, but for a save in between, which reshards.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.FSDPModule.reshard
"""

from __future__ import annotations

import re

import libcst as cst

from codemods.api import Context, Fix, Level, ModelKind, Rule, finding, left
from codemods.plan import PlannedContext
from codemods.reading.code.arguments import by_parameter
from codemods.reading.code.enclosing import call_given, enclosing, is_inside, is_self, named, upward
from codemods.reading.code.places import base
from codemods.reading.code.program import defines_method
from codemods.reading.code.shapes import called_on, parameter_names
from codemods.reading.code.words import is_name, last_name, words
from codemods.reading.edits.layout import insertion
from codemods.reading.edits.resharding import reshards
from codemods.reading.forwards.after_forward import reads_after_forward, trains_before
from codemods.reading.forwards.calls import GRAD_MODES
from codemods.reading.gradients.unsynced import computes_gradients, follows_step
from codemods.reading.optimizers.makers import is_bound_to_optimizer
from codemods.reading.parameters.lists import makers
from codemods.reading.parameters.of_model import READERS, is_of_wrapped, is_summoned, parameter_of, variable_of
from codemods.tables.names import SUMMON

from .left_whole import FREEZE, is_for_optimizer, is_same_of_copies, taken_after_forward
from .may_be_whole import may_be_left_whole

CODE = "FM209"

_FOREACH = re.compile(r"_foreach_\w+_")
_AVERAGE = "update_parameters"
_EXCHANGE = "train"
_METHODS = (*READERS, FREEZE, "zero_grad", _AVERAGE)
_COPIES = "after a forward without a backward the root's parameters are copies"
_STALE = "; behind an evaluation FSDP1 did not use what is written here in the next one"
_EXCHANGED = (
    "an optimizer puts other weights into the model behind an evaluation: the next forward takes the root's from"
    " before, as FSDP1's did; FSDP2 saves the new ones there, FSDP1 saved those from before"
)
_RESHARD = "call reshard() of the model in front of it, which trains as a model that is not sharded does"
_COMPARE = "compare its evaluations, and what trains on their values, with those of new runs only"


def fix(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    if not isinstance(call.func, cst.Attribute):
        return None
    if call.func.attr.value == _AVERAGE:
        return _of_average(call, call.func.value, ctx)
    if call.func.attr.value == _EXCHANGE:
        return _of_exchange(call, call.func.value, ctx)
    if _is_running(call.func.value, ctx):
        return None
    if not _may_get_copies(call, call.func, ctx):
        return _of_part(call, ctx)
    lines, imports = reshards(ctx, [call.func.value], call)
    message = f"`{ctx.plain(lines[0])}` in front: {_COPIES}"
    level, hint = Level.REWRITTEN, ""
    loop = _loop_over(call, ctx)
    written = (loop is not None and _writes(loop, ctx)) or _is_written_elsewhere(call, ctx)
    if written and reads_after_forward(call, call.func.value, ctx):
        level = Level.MANUAL
        message += "; FSDP1 did not use what is written here in the next forward, and the losses differ for it"
        hint = "write in front of that forward, where both train alike"
    elif (loop is not None and _is_written(loop, call, ctx)) or _is_written_at_once(call, ctx):
        level, message, hint = Level.REVIEW, message + _STALE, _COMPARE
    return Fix([insertion(ctx, call, lines)], [finding(CODE, level, ctx, call, message, hint)], imports)


def _is_running(model: cst.BaseExpression, ctx: Context) -> bool:
    """`self`, or a part of it, in the forward itself: what is whole there is in use."""
    method = enclosing(ctx, model, cst.FunctionDef)
    while isinstance(model, cst.Attribute):
        model = model.value
    return method is not None and method.name.value == "forward" and is_self(model, ctx)


def _may_get_copies(call: cst.Call, function: cst.Attribute, ctx: Context) -> bool:
    """Whether the call gives, or resets, parameters of a wrapped model that may be the copies of a forward."""
    model, method = function.value, function.attr.value
    if method == FREEZE or method not in _METHODS or not isinstance(model, (cst.Name, cst.Attribute, cst.Subscript)):
        return False
    if ModelKind.FSDP not in ctx.kinds(model) or is_inside(call, SUMMON, ctx.code(model), ctx):
        return False
    calls = [outer for outer in ctx.ancestors(call) if isinstance(outer, cst.Call)]
    trained = is_for_optimizer(call, ctx)
    evaluates = ctx.mentions(*GRAD_MODES)
    if method == "zero_grad":
        seen = reads_after_forward(call, model, ctx, trained=True)
        return seen or (evaluates and not follows_step(call, ctx))
    if not trained and not evaluates:
        return False
    after = reads_after_forward(call, model, ctx, trained) or _is_averaged(call, model, ctx)
    if _is_read_behind_backward(call, ctx) or is_same_of_copies(call, ctx):
        return False
    is_clipped = any({"clip", "grad"} <= words(last_name(outer.func)) for outer in calls)  # it has a rule of its own
    return after and not is_clipped


def _of_part(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    """The same for a part of a model, for what other functions evaluate, and for what is frozen."""
    taken = taken_after_forward(call, ctx)
    if taken is None:
        return None
    model, place = taken
    lines, imports = reshards(ctx, [model], place)
    message = f"`{ctx.plain(lines[0])}` in front: {_COPIES}"
    return Fix([insertion(ctx, place, lines)], [finding(CODE, Level.REWRITTEN, ctx, call, message)], imports)


def _of_average(call: cst.Call, average: cst.BaseExpression, ctx: PlannedContext) -> Fix | None:
    """`average.update_parameters(model)` of torch's AveragedModel, which reads the one and writes to the other."""
    if defines_method(ctx, _AVERAGE):
        return None
    pair = [average, *(argument.value for argument in call.args)]
    models = [each for each in pair if ModelKind.FSDP in ctx.kinds(each) and _may_be_whole(call, each, ctx)]
    if not models:
        return None
    lines, imports = reshards(ctx, models, call)
    message = f"`{ctx.plain(lines[0])}` in front: {_COPIES}{_STALE}"
    return Fix([insertion(ctx, call, lines)], [finding(CODE, Level.REVIEW, ctx, call, message, _COMPARE)], imports)


def _of_exchange(call: cst.Call, optimizer: cst.BaseExpression, ctx: PlannedContext) -> Fix | None:
    """`optimizer.train()` of one that exchanges the weights around an evaluation: a schedule-free one."""
    if call.args or ModelKind.FSDP in ctx.kinds(optimizer) or not ctx.mentions(*GRAD_MODES):
        return None
    if not any(is_bound_to_optimizer(where, made) for where, made in makers(optimizer, ctx)):
        return None  # a trainer, which is made of a model too
    return left(CODE, Level.REVIEW, ctx, call, _EXCHANGED, _RESHARD) if is_of_wrapped(optimizer, ctx) else None


def _may_be_whole(call: cst.Call, model: cst.BaseExpression, ctx: Context) -> bool:
    return not trains_before(call, model, ctx) and may_be_left_whole(call, model, ctx)


def _is_read_behind_backward(call: cst.Call, ctx: Context) -> bool:
    """`scaler(loss, parameters=model.parameters())`: an iterator, which the function runs dry behind its backward."""
    argument, taker = ctx.parent(call), call_given(call, ctx)
    if not isinstance(argument, cst.Arg) or argument.keyword is None or taker is None:
        return False
    name, runs = argument.keyword.value, ctx.runs(taker)
    return bool(runs) and all(_goes_backward_first(function, name, where) for where, function in runs)


def _goes_backward_first(function: cst.FunctionDef, name: str, ctx: Context) -> bool:
    backward = [ctx.span(call)[0] for call in ctx.calls(function) if computes_gradients(call)]
    return bool(backward) and all(ctx.span(node)[0] > min(backward) for node in named(ctx, function.body, name))


def _is_averaged(call: cst.Call, model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a loop that writes to parameters can come to those of a model that was only evaluated: an average's."""
    loop = _loop_over(call, ctx)
    is_written = (loop is not None and _writes(loop, ctx)) or _is_written_at_once(call, ctx)
    if not is_written or is_summoned(call, ctx):
        return False
    return _may_be_whole(call, model, ctx)


def _loop_over(call: cst.Call, ctx: Context) -> cst.For | None:
    """The loop over what the call returns, or that takes it out of the dict that it was put into."""
    for inner, outer in upward(ctx, call):
        if isinstance(outer, cst.For):
            return outer if inner is outer.iter else None
    variable = variable_of(call, ctx)
    loops = [loop for loop in ctx.nodes(cst.For) if variable and ctx.scope(loop) is ctx.scope(call)]
    return next((loop for loop in loops if _takes_out(loop, variable, ctx)), None)


def _takes_out(loop: cst.For, variable: str, ctx: Context) -> bool:
    """Whether a loop goes over what a variable holds, or looks it up: an optimizer that it steps is no such dict."""
    looked_up = (node.value for node in ctx.inside(loop) if isinstance(node, cst.Subscript))
    return any(is_name(node, variable) for node in (*ctx.inside(loop.iter), *looked_up))


def _writes(loop: cst.For, ctx: Context) -> bool:
    """Whether a loop over parameters writes to tensors in place; to gradients alone is not to parameters."""
    for node in ctx.inside(loop.body):
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            name, owner = node.func.attr.value, node.func.value
            is_one = name.endswith("_") and not name.startswith("_") and name != "requires_grad_"
        else:
            target = node.target if isinstance(node, (cst.AssignTarget, cst.AugAssign)) else None
            is_one = isinstance(target, cst.Attribute) and target.attr.value == "data"
            owner = target.value if isinstance(target, cst.Attribute) else loop.target
        if is_one and not _is_of_gradient(owner):
            return True
    return False


def _is_written_at_once(call: cst.Call, ctx: Context) -> bool:
    """`torch._foreach_mul_(params, 0.9)`: of the parameters that the call gives, in a list or in one that is filled."""
    writes = [each for each in ctx.calls(ctx.scope(call)) if _FOREACH.fullmatch(last_name(each.func)) and each.args]
    if not writes:
        return False
    loop = _loop_over(call, ctx)
    puts = [node for node in ctx.inside(loop.body) if isinstance(node, cst.Call)] if loop is not None else []
    lists = [called_on(put, "append") for put in puts if loop and _is_about(put, parameter_of(call, loop), ctx)]
    lists.append(_filled_with(call, ctx))
    names = {variable_of(call, ctx), *(ctx.code(each) for each in lists if each is not None)} - {""}
    written = [node for each in writes for node in ctx.inside(each.args[0].value)]
    held = [node for node in written if isinstance(node, (cst.Name, cst.Attribute))]
    return call in written or any(ctx.code(node) in names for node in held)


def _filled_with(call: cst.Call, ctx: Context) -> cst.BaseExpression | None:
    """`params` of `params += list(model.parameters())` and `params.extend(model.parameters())`."""
    inner: cst.CSTNode = call
    for outer in ctx.ancestors(call):
        if isinstance(outer, cst.AugAssign):
            return outer.target if outer.value is inner else None
        if isinstance(outer, cst.Call):
            filled = called_on(outer, "extend")
            if filled is not None or last_name(outer.func) not in {"list", "tuple"}:
                return filled
        elif not isinstance(outer, cst.Arg):
            return None
        inner = outer
    return None


def _is_about(put: cst.Call, parameter: cst.BaseExpression, ctx: Context) -> bool:
    """`dst.append(p)`, `dst.append(p.data)`."""
    return len(put.args) == 1 and (base(put.args[0].value) or "").split(".")[0] == ctx.code(parameter)


def _is_of_gradient(owner: cst.BaseExpression) -> bool:
    """`p.grad` and `p.grad.data`."""
    while isinstance(owner, cst.Attribute):
        if owner.attr.value == "grad":
            return True
        owner = owner.value
    return False


def _is_written_elsewhere(call: cst.Call, ctx: Context) -> bool:
    """Whether the function of the program that is given the parameters writes to them: `average.restore(params)`."""
    taker = call_given(call, ctx)
    if taker is None:
        return False
    for where, function in ctx.runs(taker):
        given = by_parameter(taker.args, [name for name in parameter_names(function) if name != "self"]) or {}
        names = [name for name, argument in given.items() if argument.value is call]
        for loop in (node for node in where.inside(function.body) if isinstance(node, cst.For)):
            over = (node for node in where.inside(loop.iter) if isinstance(node, cst.Name) and node.value in names)
            if any(_is_written_as(re.escape(where.code(parameter_of(each, loop))), loop, where) for each in over):
                return True
    return False


def _is_written(loop: cst.For, call: cst.Call, ctx: Context) -> bool:
    """Whether the loop writes to the parameters of this very call, and not to those beside them."""
    variable = variable_of(call, ctx)
    is_looked_up = variable and not any(is_name(node, variable) for node in ctx.inside(loop.iter))
    if is_looked_up:
        return _is_written_as(rf"{variable}\[[^\]]*\]", loop, ctx)
    return _is_written_as(re.escape(ctx.code(parameter_of(call, loop))), loop, ctx)


def _is_written_as(name: str, loop: cst.For, ctx: Context) -> bool:
    written = rf"(?<![\w.]){name}(\.data)?(\.(?!requires_grad_)[a-z]\w*_\(|\s*[-+*/]?=(?!=))"
    return re.search(written, ctx.code(loop.body)) is not None


RULE = Rule(CODE, "parameters-after-forward", __doc__, nodes=(cst.Call,), fix=fix, methods=(*_METHODS, _EXCHANGE))
