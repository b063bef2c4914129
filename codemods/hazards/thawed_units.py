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

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding
from codemods.plan import PlannedContext
from codemods.reading.code.once import once
from codemods.reading.code.shapes import called_on
from codemods.reading.models.frozen import flag_set
from codemods.reading.models.parts import wrapped_around
from codemods.reading.parameters.lists import heads
from codemods.reading.parameters.of_model import READERS, is_shard

CODE = "FM458"

_FLAGS = ("requires_grad", "requires_grad_")
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
    set_here = [(node, told, flag) for node, told, flag in _settings(ctx) if _is_of_model(told, ctx)]
    for node, told, flag in set_here:
        if flag == "False":
            continue
        around = ctx.scope(node)
        is_switched = flag.removeprefix("not ").isidentifier() and flag != "True"
        is_switched |= any(other == "False" and ctx.scope(each) is around for each, _, other in set_here)
        is_sure = not is_switched and any(ctx.kinds(each) == {ModelKind.FSDP} for each in _owners(told, ctx))
        yield finding(CODE, Level.MANUAL if is_sure else Level.REVIEW, ctx, node, _MESSAGE, _HINT)


def _owners(told: cst.BaseExpression, ctx: Context) -> Iterator[cst.BaseExpression]:
    """`model.head` and `model`, of it or of a loop over its parameters."""
    loops = (outer for outer in ctx.ancestors(told) if isinstance(outer, (cst.For, cst.BaseComp)))
    over = (each for loop in loops for head in heads(loop) for each in (head.iter, *ctx.inside(head.iter)))
    for part in (told, *(model for each in over if (model := called_on(each, *READERS)) is not None)):
        yield part
        while isinstance(part, (cst.Attribute, cst.Subscript)):
            part = part.value
            yield part


def _is_mixed(ctx: PlannedContext) -> bool:
    """Whether a wrap that runs with this file is given a precision."""
    plans = (ctx.plan.wraps[call] for _, call in ctx.wrapping.calls(ctx.path) if call in ctx.plan.wraps)
    return any(plan.draft is None or "mixed_precision" in plan.draft.given for plan in plans)


@once
def _freezes(ctx: Context) -> bool:
    return any(flag != "True" for _, _, flag in _settings(ctx))


def _settings(ctx: Context) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression, str]]:
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
