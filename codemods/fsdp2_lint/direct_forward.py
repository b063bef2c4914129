"""**What it does.** Finds `model.forward(...)` of a sharded model.

**Why.** The all-gathers of FSDP2 hang on `model(...)`. A direct call of `forward` goes past them and meets sharded
parameters: `got mixed torch.Tensor and DTensor`.

## Example

```python
from torch.distributed.fsdp import fully_shard


def evaluate(model, batch):
    fully_shard(model)
    return model.forward(batch)
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard


def evaluate(model, batch):
    fully_shard(model)
    return model(batch)
```

## Fix safety

Nothing is changed. A program that calls `register_fsdp_forward_method` is left alone.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.register_fsdp_forward_method
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.code.places import place
from codemods.reading.own_fsdp2.shardings import WORDS, fully_shard_calls, known_as, sharded_above

CODE = "FM504"


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each call."""
    if ctx.mentions("register_fsdp_forward_method"):
        return
    names = {known_as(ctx, call, where) for call, where in fully_shard_calls(ctx)}
    for call in ctx.nodes(cst.Call):
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "forward":
            continue
        model = place(call.func.value)
        if model in names and sharded_above(ctx, call, model):
            message = "forward is called directly, past the all-gathers of a sharded model"
            hint = f'call {model}(...), or register_fsdp_forward_method({model}, "forward") once'
            yield finding(CODE, Level.MANUAL, ctx, call, message, hint)


CHECK = Check(CODE, "forward-called-directly", __doc__, words=WORDS, find=find)
