"""**What it does.** Finds a program that shards the whole model with one call, and no module inside of it.

**Why.** A `fully_shard` call makes one unit: its parameters are gathered together, before the forward of its module.
With the root alone each rank holds the whole model during forward and backward, and no communication overlaps any
computation: what is left of sharding is smaller gradients and optimizer states. FSDP1 without an auto-wrap policy did
the same, so a faithful rewrite of such a program has this too.

## Example

```python
from torch.distributed.fsdp import fully_shard

from net import Net

model = Net()
fully_shard(model)
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard

from net import Net

model = Net()
for layer in model.layers:
    fully_shard(layer)
fully_shard(model)
```

## Fix safety

Nothing is changed, and `check` does not fail for it: the training is right, and a small model needs no more. A call in
a loop, or of a function that others call with models of theirs, is left alone.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.code.enclosing import enclosing
from codemods.reading.code.places import place
from codemods.reading.own_fsdp2.shardings import WORDS, is_fully_shard

CODE = "FM501"

_MESSAGE = "only the whole model is sharded: each rank gathers all of it at once, and nothing overlaps"
_HINT = "shard each layer before the model, unless the model is small"

_LOOPS = (cst.For, cst.While, cst.BaseComp, cst.Lambda)


def find(ctx: Context) -> Iterator[Finding]:
    """One finding, at the first call, where all calls of the program shard the same model."""
    if ctx.mentions_elsewhere(*WORDS) or ctx.mentions("shard_model") or _is_value(ctx):
        return
    calls = [call for call in ctx.nodes(cst.Call) if call.args and is_fully_shard(ctx, call.func)]
    if len({ctx.code(call.args[0].value) for call in calls}) == 1 and all(_is_whole(ctx, call) for call in calls):
        yield finding(CODE, Level.REVIEW, ctx, calls[0], _MESSAGE, _HINT)


def _is_value(ctx: Context) -> bool:
    """Whether `fully_shard` is handed on, to be called for other modules: `model.apply(fully_shard)`."""
    given = [argument.value for argument in ctx.nodes(cst.Arg)]
    given += [assignment.value for assignment in ctx.nodes(cst.Assign)]
    return any(is_fully_shard(ctx, value) for value in given)


def _is_whole(ctx: Context, call: cst.Call) -> bool:
    """Whether the call is made once, for something that is a part of nothing else in sight."""
    if not _is_once(ctx, call) or not _is_model(ctx, call, call.args[0].value):
        return False
    model = call.args[0].value
    function = ctx.scope(call)
    if not isinstance(model, cst.Name) or not isinstance(function, cst.FunctionDef):
        return True
    params = function.params
    if model.value not in {p.name.value for p in (*params.posonly_params, *params.params, *params.kwonly_params)}:
        return True
    passed = ctx.passed_to(call, model.value)
    return len(passed) == 1 and all(_is_once(where, by) and _is_model(where, by, given) for where, by, given in passed)


def _is_model(ctx: Context, call: cst.Call, node: cst.BaseExpression) -> bool:
    """`Net()`, `model`, and `self.model` of an object that is no module."""
    if isinstance(node, cst.Call):
        return True
    where = place(node) or "."
    if "." not in where:
        return where != "self"
    owner = enclosing(ctx, call, cst.ClassDef)
    bases = [ctx.dotted(base.value) or ctx.code(base.value) for base in owner.bases] if owner is not None else []
    return where.count(".") == 1 and where.startswith("self.") and not any(base.endswith("Module") for base in bases)


def _is_once(ctx: Context, call: cst.Call) -> bool:
    for node in ctx.ancestors(call):
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            return True
        if isinstance(node, _LOOPS):
            return False
    return True


CHECK = Check(CODE, "root-only", __doc__, words=WORDS, find=find)
