"""**What it does.** Finds loops over a wrapped model's parameters that ask for their number of dimensions: parameter
groups for weight decay, mostly, and optimizers of the program's own that treat matrices in another way.

**Why.** Under FSDP1 a parameter outside forward is a flat slice: every one has one dimension, so `p.ndim < 2` was
true of all of them and one group took everything. An FSDP2 parameter has its own shape. The rewritten program does
what was meant, and trains otherwise than before (the loss differed by 0.08 with weight_decay 0.5, measured on torch
2.13).

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    model = FSDP(net, use_orig_params=True)
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    return torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0.0}])
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    model = FSDP(net, use_orig_params=True)
    return torch.optim.AdamW(model.parameters(), weight_decay=0.0)  # as it was trained so far
```

## Fix safety

Nothing is changed: only you know whether the run should go on as it was, or as it was meant. Groups that are made
before the model is wrapped saw whole parameters under FSDP1 too, and stay as they are.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import dropwhile, islice

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.code.enclosing import enclosing, named
from codemods.reading.code.places import bound
from codemods.reading.code.shapes import alone, called_on, only_target
from codemods.reading.models.parts import wrapped_around
from codemods.reading.optimizers.makers import groups_by_dimension
from codemods.reading.parameters.dimensions import asks_dimensions
from codemods.reading.parameters.lists import heads
from codemods.reading.parameters.of_model import READERS, Loop, handed_on, is_summoned, loops_over
from codemods.reading.parameters.sharded_values import is_sharded
from codemods.reading.parameters.stepped import stepped
from codemods.reading.values.asked_for import asked_for, made_of
from codemods.tables.optimizers import BY_DIMENSION

CODE = "FM404"

_MESSAGE = (
    "`{test}` tells a wrapped model's parameters apart by their dimensions: FSDP1's were flat, FSDP2's have their own"
    " shapes"
)
_STEPPED = (
    "`{test}` of the optimizer asks for the dimensions of parameters: FSDP1's were flat, FSDP2's have their own shapes"
)
_HINT = "it trains as it was meant now: to go on as it was, put all parameters into the group that FSDP1 put them into"
_HINT_OF_STEP = "compare the losses: what the optimizer does for matrices it does for them now"
_TENSOR = (cst.Name, cst.Attribute)


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each loop over a wrapped model's parameters that asks for their dimensions, at the question."""
    seen: set[cst.CSTNode | None] = set()
    for given in _read_or_handed_on(ctx):
        asked = next((each for loop in loops_over(given, ctx) for each in _questions(loop, ctx)), None)
        function = enclosing(ctx, asked, cst.FunctionDef) if asked is not None else None
        if asked is not None and function is not None and _is_for_others(asked, ctx):
            continue
        if asked is not None and (isinstance(given, cst.Call) or function not in seen):
            seen.add(function)
            test = next((n for n in ctx.ancestors(asked) if isinstance(n, cst.Comparison)), asked)
            yield finding(CODE, Level.MANUAL, ctx, test, _MESSAGE.format(test=ctx.code(test)), _HINT)
    for call in ctx.nodes(cst.Call):
        if groups_by_dimension(ctx, call) and any(wrapped_around(each.value, ctx) is not None for each in call.args):
            yield finding(CODE, Level.MANUAL, ctx, call, _MESSAGE.format(test=ctx.code(call.func)), _HINT)
    for reading in stepped(ctx):
        asked_here = list(_questions(reading.body, ctx)) if isinstance(reading.body, Loop) else []
        tests = [each for asked in asked_here for each in _tests(asked, ctx)]
        about = next((each for each in tests if _speaks_of_sharded(each, ctx)), None)
        if about is not None:
            yield finding(CODE, Level.REVIEW, ctx, about, _STEPPED.format(test=ctx.code(about)), _HINT_OF_STEP)


def _tests(asked: cst.CSTNode, ctx: Context) -> Iterator[cst.CSTNode]:
    """The comparison that asks, or the call of the function that does: a number of dimensions alone decides nothing."""
    compared = next((outer for outer in ctx.ancestors(asked) if isinstance(outer, cst.Comparison)), None)
    if compared is not None or not asks_dimensions(asked, ctx):
        yield compared or asked


def _speaks_of_sharded(test: cst.CSTNode, ctx: Context) -> bool:
    return any(is_sharded(node, ctx) for node in ctx.inside(test) if isinstance(node, _TENSOR))


def _questions(loop: Loop, ctx: Context) -> Iterator[cst.CSTNode]:
    """Where a loop asks for dimensions, itself or by a function of the program: `if has_decay(name, p):`."""
    yield from (node for node in ctx.inside(loop) if asks_dimensions(node, ctx))
    names = frozenset(name for head in heads(loop) for name in bound(head.target))
    for asked in asked_for(loop, names | made_of(names, loop, ctx), ctx):
        inside = asked.file.inside(asked.body)
        if any(asks_dimensions(node, asked.file) and asked.is_about(node) for node in inside):
            yield asked.call


def _read_or_handed_on(ctx: Context) -> Iterator[cst.Call | Loop]:
    """`model.named_parameters()`, and the loops over it in a function that is given it."""
    for call in ctx.nodes(cst.Call):
        model = called_on(call, *READERS)
        if model is not None and wrapped_around(model, ctx) is not None and not is_summoned(call, ctx):
            yield call
    if any(asks_dimensions(node, ctx) for kind in (cst.Attribute, cst.Call) for node in ctx.nodes(kind)):
        yield from (reading.body for reading in handed_on(ctx) if isinstance(reading.body, Loop))


def _is_for_others(asked: cst.CSTNode, ctx: Context) -> bool:
    """Whether each run that wraps does without what the function around gives."""
    callers = ctx.callers(asked)
    return bool(callers) and all(is_overwritten(where, call) for where, call in callers)


# What a call gives, and each run that wraps puts something else in the place of before it is read.
#
# `groups = by_dimensions(model)`, then `if args.fsdp: groups = model.parameters()`.


def is_overwritten(ctx: Context, call: cst.Call) -> bool:
    """Whether the variable that takes what a call gives is bound anew, by the next statement that names it."""
    assignment = ctx.parent(call)
    line = ctx.parent(assignment) if isinstance(assignment, cst.Assign) else None
    name = _bound(line) if line is not None else None
    block = ctx.parent(line) if line is not None else None
    if name is None or not isinstance(block, (cst.IndentedBlock, cst.Module)):
        return False
    below = islice(dropwhile(lambda each: each is not line, block.body), 1, None)
    following = next((each for each in below if _names(ctx, each, name)), None)
    if not isinstance(following, cst.If) or not ctx.is_met_where_wrapped(following.test):
        return False
    first = next((each for each in following.body.body if _names(ctx, each, name)), None)
    return first is not None and _bound(first) == name and _names(ctx, first, name) == 1


def _bound(line: cst.CSTNode) -> str | None:
    """`name` of `name = …`, alone on its line."""
    target = only_target(alone(line))
    return target.value if isinstance(target, cst.Name) else None


def _names(ctx: Context, statement: cst.CSTNode, name: str) -> int:
    return sum(getattr(ctx.parent(node), "attr", None) is not node for node in named(ctx, statement, name))


CHECK = Check(CODE, "parameters-by-dimension", __doc__, words=(*READERS, "params", *BY_DIMENSION), find=find)
