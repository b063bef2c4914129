"""**What it does.** Finds `torch.compile` around a model whose parts are sharded.

**Why.** The hooks of the units stand inside of what is compiled, and end the graph: dynamo gives up the frame of the
whole model, and compiles what the units' forwards call, each by itself. What lies between the units is not compiled,
and the keys of the model's state dict begin with `_orig_mod.`. Compiled unit by unit, above `fully_shard`, each block
is one graph, and all blocks of one class share it (measured on torch 2.13 with 3 blocks: 1 graph of 3 frames that
compile; around the root 4 frames of which one is given up; the losses are equal).

## Example

```python
import torch
from torch.distributed.fsdp import fully_shard


def shard(model):
    model = torch.compile(model)
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
```

## Use instead

```python
import torch
from torch.distributed.fsdp import fully_shard


def shard(model):
    for layer in model.layers:
        layer.compile()
        fully_shard(layer)
    fully_shard(model)
```

## Fix safety

Nothing is changed, and `check` does not fail for it: the training is right. Only calls in the function that shards
the model are looked at. A model that is sharded at its root only is left alone.

## References

- https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.compile
- https://github.com/pytorch/torchtitan/blob/main/torchtitan/models/llama3/parallelize.py
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.code.places import place
from codemods.reading.own_fsdp2.shardings import known_as, shardings

CODE = "FM510"

_MESSAGE = "compiled around a model whose parts are sharded: their hooks end the graph"
_HINT = "compile each unit above its fully_shard: unit.compile()"


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each call."""
    compiled = [(call, where) for call in ctx.nodes(cst.Call) if (where := _compiled(ctx, call)) is not None]
    for sharding in shardings(ctx):
        names = {sharding.model, sharding.known_as}
        for call, where in compiled:
            is_here = ctx.scope(call) is ctx.scope(sharding.root)
            if sharding.units and is_here and names & {where, known_as(ctx, call, where)}:
                yield finding(CODE, Level.REVIEW, ctx, call, _MESSAGE, _HINT)


def _compiled(ctx: Context, call: cst.Call) -> str | None:
    """The place of what is compiled as a whole."""
    if ctx.dotted(call.func) == "torch.compile":
        return place(call.args[0].value) if call.args else None
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "compile":
        return place(call.func.value)
    return None


CHECK = Check(CODE, "compiled-around-root", __doc__, words=("fully_shard",), find=find)
