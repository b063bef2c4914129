"""**What it does.** Finds layers that are converted to float8 after their model, or a part of it, is sharded.

**Why.** `convert_to_float8_training` puts new layers in the place of the old ones, with weights that FSDP2 never saw:
they are not gathered, and the first forward raises `got mixed torch.Tensor and DTensor` (measured with torchao 0.18
and torch 2.13). Without a forward, as where it is saved only, nothing says so.

## Example

```python
from torch.distributed.fsdp import fully_shard
from torchao.float8 import convert_to_float8_training


def shard(model):
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    convert_to_float8_training(model)
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard
from torchao.float8 import convert_to_float8_training


def shard(model):
    convert_to_float8_training(model)
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
```

## Fix safety

Nothing is changed. Only calls in one function are compared, by the names they are written with.

## References

- https://docs.pytorch.org/ao/stable/workflows/training.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.code.places import place, same
from codemods.reading.own_fsdp2.shardings import comes_before, shardings

CODE = "FM508"

_MESSAGE = "layers are converted to float8 after they were sharded: what FSDP2 gathers is not theirs"
_HINT = "convert them above the first fully_shard of the model"

_CONVERT = "convert_to_float8_training"


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each conversion."""
    for call in ctx.nodes(cst.Call):
        dotted = ctx.dotted(call.func) or ""
        if not dotted.startswith("torchao.") or not dotted.endswith(f".{_CONVERT}") or not call.args:
            continue
        model = place(call.args[0].value)
        if model is not None and any(_is_sharded(ctx, call, model)):
            yield finding(CODE, Level.MANUAL, ctx, call, _MESSAGE, _HINT)


def _is_sharded(ctx: Context, call: cst.Call, model: str) -> Iterator[bool]:
    for sharding in shardings(ctx):
        if any(same(name, model) for name in (sharding.model, sharding.known_as)):
            yield any(comes_before(ctx, each, call) for each in (sharding.root, *(u.call for u in sharding.units)))


CHECK = Check(CODE, "float8-after-sharding", __doc__, words=(_CONVERT,), find=find)
