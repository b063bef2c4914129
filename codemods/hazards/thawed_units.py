"""**What it does.** Finds `p.requires_grad = True` for parameters of a model that is wrapped with mixed precision, in a
program that freezes some.

**Why.** FSDP2 looks once, before a unit's first forward, which dtype the gradients of its parameters are reduced in,
and asks those that require one. A unit that is frozen as a whole then has none: when it trains later, its gradients
come in the low precision of its forward, and backward raises "attempting to assign a gradient with dtype" (torch 2.13).
`unshard()` looks again.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision


def train(net, probe, finetune):
    net.requires_grad_(False)
    net.head.requires_grad_(True)
    model = FSDP(net, use_orig_params=True, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
    probe(model)
    model.requires_grad_(True)
    finetune(model)
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(net, probe, finetune):
    net.requires_grad_(False)
    net.head.requires_grad_(True)
    model = FSDP(net, use_orig_params=True)
    probe(model)
    model.requires_grad_(True)
    finetune(model)
```

## Fix safety

Nothing is changed. Behind the statement, this is enough (measured: the losses are FSDP1's):
`for module in model.modules(): if isinstance(module, FSDPModule): module.unshard(); module.reshard()`.
It gathers each unit once, so that it is not for what is frozen and thawed in each step, as the networks of a GAN;
those are for review, and so is what may not be wrapped yet: units that train at their first forward have their dtype.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding
from codemods.plan import PlannedContext
from codemods.reading.code.once import once
from codemods.reading.code.places import bound
from codemods.reading.code.shapes import called_on, is_call_to
from codemods.reading.models.frozen import flag_set
from codemods.reading.models.parts import wrapped_around
from codemods.reading.parameters.lists import heads
from codemods.reading.parameters.of_model import READERS, is_shard

CODE = "FM458"

_FLAGS = ("requires_grad", "requires_grad_")
_DEPTH = 3
"""Callers that are followed up."""
_Setting: TypeAlias = "tuple[cst.CSTNode, cst.BaseExpression, str]"
_MESSAGE = (
    "a unit that is frozen as a whole at its first forward, and trains from here on, raises in backward: with mixed"
    " precision FSDP2 looks once which dtype its gradients are reduced in"
)
_HINT = (
    "let each unit look again behind this:"
    " for module in model.modules(): if isinstance(module, FSDPModule): module.unshard(); module.reshard()"
)


def find(ctx: PlannedContext) -> Iterator[Finding]:
    """One finding for each place where parameters begin to train."""
    if not _is_mixed(ctx) or not any(_freezes(where) for word in _FLAGS for where in ctx.files(word)):
        return
    set_anywhere = list(_settings(ctx))
    set_here = [(node, told, flag) for node, told, flag in set_anywhere if _is_of_model(told, ctx)]
    for node, told, flag in set_here:
        if flag == "False" or _is_set_up(node, told, set_anywhere, ctx):
            continue
        around = ctx.scope(node)
        is_switched = flag.removeprefix("not ").isidentifier() and flag != "True"
        is_switched |= any(other == "False" and ctx.scope(each) is around for each, _, other in set_here)
        is_sure = not is_switched and any(ctx.kinds(each) == {ModelKind.FSDP} for each in _owners(told, ctx))
        yield finding(CODE, Level.MANUAL if is_sure else Level.REVIEW, ctx, node, _MESSAGE, _HINT)


def _is_set_up(node: cst.CSTNode, told: cst.BaseExpression, set_anywhere: Sequence[_Setting], ctx: Context) -> bool:
    """Whether a part is left to train where the whole is frozen just above, once: `net.requires_grad_(False)`, and then
    `net.head.requires_grad_(True)`.

    Not in a loop, nor in a function that several places call, as one for each phase of a training.
    """
    if _is_repeated(node, ctx, 0 if _is_made_here(told, ctx) else _DEPTH):
        return False
    wholes = {ctx.code(each) for each in _owners(told, ctx) if not _is_parameter(each, ctx)}
    return any(
        flag == "False" and ctx.scope(each) is ctx.scope(node) and _is_followed_by(each, whole, node, wholes, ctx)
        for each, whole, flag in set_anywhere
    )


def _is_followed_by(
    frozen: cst.CSTNode, told: cst.BaseExpression, node: cst.CSTNode, wholes: Collection[str], ctx: Context
) -> bool:
    """Whether what one statement freezes is one of these, and nothing can run it before another statement."""
    end, start = ctx.span(frozen)[1], ctx.span(node)[0]
    name = next((ctx.code(each) for each in _owners(told, ctx) if not _is_parameter(each, ctx)), "")
    if end > start or name not in wholes:
        return False
    between = [call for call in ctx.calls(ctx.scope(node)) if end < ctx.span(call)[0] < start]
    return not any(_may_run(call, name, ctx) for call in between)


def _may_run(call: cst.Call, name: str, ctx: Context) -> bool:
    """Whether a call runs a function of the program, or takes the model of this name."""
    if is_call_to(call, "getattr", "hasattr", "isinstance", "print"):
        return False
    return any(ctx.runs(call)) or any(ctx.code(argument.value) == name for argument in call.args)


def _is_parameter(part: cst.BaseExpression, ctx: Context) -> bool:
    """`p` of `for p in net.parameters():`."""
    loops = (outer for outer in ctx.ancestors(part) if isinstance(outer, cst.For))
    return isinstance(part, cst.Name) and any(part.value in bound(loop.target) for loop in loops)


def _is_made_here(told: cst.BaseExpression, ctx: Context) -> bool:
    """Whether each call of the function around has a model of its own."""
    *_, root = _owners(told, ctx)
    made = ctx.bound(root) or () if isinstance(root, cst.Name) else ()
    return any(
        isinstance(each, cst.Call) and ctx.scope(each) is ctx.scope(told) for where, each in made if where is ctx
    )


def _is_repeated(node: cst.CSTNode, ctx: Context, depth: int) -> bool:
    loops = (outer for outer in ctx.ancestors(node) if isinstance(outer, (cst.For, cst.While)))
    if any(isinstance(loop, cst.While) or not _is_over_parameters(loop, ctx) for loop in loops):
        return True
    calls = list(ctx.callers(node)) if depth else []
    return len(calls) > 1 or any(_is_repeated(call, where, depth - 1) for where, call in calls)


def _is_over_parameters(loop: cst.For, ctx: Context) -> bool:
    return any(called_on(each, *READERS) is not None for each in (loop.iter, *ctx.inside(loop.iter)))


def _owners(told: cst.BaseExpression, ctx: Context) -> Iterator[cst.BaseExpression]:
    """`model.head` and `model`, of it or of a loop over its parameters."""
    loops = (outer for outer in ctx.ancestors(told) if isinstance(outer, (cst.For, cst.BaseComp)))
    over = (each for loop in loops for head in heads(loop) for each in (head.iter, *ctx.inside(head.iter)))
    for part in (told, *(model for each in over if (model := called_on(each, *READERS)) is not None)):
        yield part
        while isinstance(part, (cst.Attribute, cst.Call, cst.Subscript)):
            part = part.func if isinstance(part, cst.Call) else part.value
            yield part


def _is_mixed(ctx: PlannedContext) -> bool:
    """Whether a wrap that runs with this file is given a precision."""
    plans = (ctx.plan.wraps[call] for _, call in ctx.wrapping.calls(ctx.path) if call in ctx.plan.wraps)
    return any(plan.draft is None or "mixed_precision" in plan.draft.given for plan in plans)


@once
def _freezes(ctx: Context) -> bool:
    return any(flag != "True" for _, _, flag in _settings(ctx))


def _settings(ctx: Context) -> Iterator[_Setting]:
    """`p.requires_grad = flag` and `net.requires_grad_(flag)`: the statement, `p` or `net`, and the flag's text."""
    statements: list[cst.Assign | cst.Call] = [*ctx.nodes(cst.Assign), *ctx.nodes(cst.Call)]
    for node in statements:
        flag = flag_set(ctx, node)
        told = node.targets[0].target if isinstance(node, cst.Assign) else node.func
        if flag is not None and isinstance(told, cst.Attribute):
            yield node, told.value, flag


def _is_of_model(told: cst.BaseExpression, ctx: Context) -> bool:
    return wrapped_around(told, ctx) is not None or is_shard(told, ctx)


CHECK = Check(CODE, "thawed-units", __doc__, words=_FLAGS, find=find)
