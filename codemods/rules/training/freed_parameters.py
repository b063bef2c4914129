"""**What it does.** Rewrites `_free_storage(unit._handle.flat_param.data)` into `free_shards(unit)` of the support
module.

**Why.** An FSDP2 model has no flat parameters. What such a line is for, to give the memory of a model back that is
not needed any more, is still wanted: its sharded parameters can be held by an optimizer or a reference cycle.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.utils import _free_storage


def encode(net, batch):
    model = FSDP(net)
    encoded = model(batch)
    for unit in model.modules():
        if isinstance(unit, FSDP):
            _free_storage(unit._handle.flat_param.data)
    return encoded
```

## Use instead

```python
from torch.distributed.fsdp import FSDPModule, fully_shard

from fsdp2_support import free_shards


def encode(net, batch):
    model = fully_shard(net)
    encoded = model(batch)
    for unit in model.modules():
        if isinstance(unit, FSDPModule):
            free_shards(unit)
    return encoded
```

## Fix safety

The same memory is freed, and the model cannot be used afterwards either. Only what frees a flat parameter is
rewritten; any other use of a handle is reported.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import libcst as cst

from codemods.api import SUPPORT, Context, Fix, Import, Rule, replaced

CODE = "FM440"


def fix(call: cst.Call, ctx: Context) -> Fix | None:
    """Of `_free_storage(unit._handle.flat_param.data)`."""
    if not (ctx.dotted(call.func) or "").endswith("._free_storage"):
        return None
    if len(call.args) != 1 or not isinstance(ctx.parent(call), cst.Expr):
        return None
    tensor = call.args[0].value
    flat = tensor.value if isinstance(tensor, cst.Attribute) and tensor.attr.value == "data" else tensor
    handle = flat.value if isinstance(flat, cst.Attribute) and flat.attr.value == "flat_param" else None
    if not isinstance(handle, cst.Attribute) or handle.attr.value != "_handle":
        return None
    item = ctx.named(Import(SUPPORT, "free_shards"), call)
    text = f"{item.local}({ctx.quote(handle.value)})"
    message = "freeing a flat parameter becomes free_shards, a support function"
    return replaced(CODE, ctx, call, text, message, [item])


RULE = Rule(CODE, "freed-flat-parameter", __doc__, nodes=(cst.Call,), fix=fix)
