"""**What it does.** Finds a model that is moved to a GPU chosen by rank and then sharded, in a program that never sets
the current device.

**Why.** `fully_shard` moves parameters to the current device of the mesh. It is set from LOCAL_RANK only while CUDA is
not in use yet; after `model.to(rank)` it is, and every rank shards its parameters onto the first GPU.

## Example

```python
from torch.distributed.fsdp import fully_shard


def shard(model, local_rank):
    model.cuda(local_rank)
    fully_shard(model)
```

## Use instead

```python
import torch
from torch.distributed.fsdp import fully_shard


def shard(model, local_rank):
    torch.cuda.set_device(local_rank)
    model.cuda()
    fully_shard(model)
```

## Fix safety

Nothing is changed. A program that calls `set_device` anywhere is left alone.

## References

- https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_device.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.code.places import base
from codemods.reading.code.words import last_name
from codemods.reading.own_fsdp2.shardings import WORDS, fully_shard_calls
from codemods.reading.processes.current_device import device_calls, is_set_elsewhere
from codemods.reading.wraps.wrapped import calls_above

CODE = "FM507"

_MESSAGE = "the model is moved to a GPU of its own and then sharded, but the current device is never set"
_HINT = "call torch.cuda.set_device(local_rank) before CUDA is used"

_RANKS = frozenset({"rank", "local_rank", "global_rank"})


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each model."""
    if any(device_calls(ctx)) or is_set_elsewhere(ctx):
        return
    for call, place in fully_shard_calls(ctx):
        for other in calls_above(ctx, call, place):
            if _moves_by_rank(ctx, other, place):
                yield finding(CODE, Level.MANUAL, ctx, other, _MESSAGE, _HINT)


def _moves_by_rank(ctx: Context, call: cst.Call, place: str) -> bool:
    if not isinstance(call.func, cst.Attribute) or not call.args or base(call.func.value) != place:
        return False
    device = call.args[0].value
    if call.func.attr.value == "cuda":
        return _is_rank(device)
    return call.func.attr.value == "to" and (_is_rank(device) or _is_named(device))


def _is_rank(device: cst.BaseExpression) -> bool:
    """`rank` and `self.local_rank`."""
    return isinstance(device, (cst.Name, cst.Attribute)) and last_name(device).lower() in _RANKS


def _is_named(device: cst.BaseExpression) -> bool:
    """`f"cuda:{rank}"`."""
    if not isinstance(device, cst.FormattedString) or len(device.parts) != 2:
        return False
    said, number = device.parts
    is_cuda = isinstance(said, cst.FormattedStringText) and said.value == "cuda:"
    return is_cuda and isinstance(number, cst.FormattedStringExpression)


CHECK = Check(CODE, "device-not-set", __doc__, words=WORDS, find=find)
