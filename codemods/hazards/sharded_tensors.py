"""**What it does.** Finds `isinstance(value, ShardedTensor)` in a program that wraps models.

**Why.** In a sharded state dict FSDP1 gave a `ShardedTensor` for each parameter, and FSDP2 gives a `DTensor`: the test
is never true any more, and what it chose is passed over without a word.

## Example

```python
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    return FSDP(net)


def local(state):
    return {key: value.local_tensor() for key, value in state.items() if isinstance(value, ShardedTensor)}
```

## Use instead

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.tensor import DTensor


def build(net):
    return FSDP(net)


def local(state):
    return {key: value.to_local() for key, value in state.items() if isinstance(value, DTensor)}
```

## Fix safety

Nothing is changed. A DTensor is not padded, and a rank can hold an empty part of one, where a `ShardedTensor` had no
local shard at all.

## References

- https://docs.pytorch.org/docs/stable/distributed.tensor.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.code.shapes import class_test

CODE = "FM308"

_MESSAGE = "a test for ShardedTensor is never true of an FSDP2 state dict, whose tensors are DTensors"
_HINT = "test for DTensor of torch.distributed.tensor, and read to_local() in the place of local_shards()"


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each function, at the first test."""
    told = set()
    for call in ctx.nodes(cst.Call):
        scope = ctx.scope(call)
        if scope in told or not ctx.wrapping.is_any or not _asks_for(call, "ShardedTensor", ctx):
            continue
        others = [other for other in ctx.calls(scope) if _asks_for(other, "DTensor", ctx)]
        if any(ctx.code(other.args[0]) == ctx.code(call.args[0]) for other in others):
            continue
        told.add(scope)
        yield finding(CODE, Level.MANUAL, ctx, call, _MESSAGE, _HINT)


def _asks_for(call: cst.Call, name: str, ctx: Context) -> bool:
    asked = class_test(call, ctx)
    inside = ctx.inside(asked[1]) if asked is not None else ()
    named = [node for node in inside if isinstance(node, (cst.Name, cst.Attribute))]
    return any((ctx.dotted(node) or "").startswith("torch.") and _last(ctx, node) == name for node in named)


def _last(ctx: Context, node: cst.BaseExpression) -> str:
    return (ctx.dotted(node) or "").rpartition(".")[2]


CHECK = Check(CODE, "sharded-tensor-test", __doc__, words=("ShardedTensor",), find=find)
