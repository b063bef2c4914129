"""**What it does.** Rewrites `_free_storage(unit._handle.flat_param.data)`: the unit's parameters are resharded, and
give back their memory one by one.

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
from torch.distributed.tensor import DTensor


def encode(net, batch):
    model = fully_shard(net)
    encoded = model(batch)
    for unit in model.modules():
        if isinstance(unit, FSDPModule):
            unit.reshard()
            for param in unit.parameters():
                if isinstance(param, DTensor):
                    param.to_local().untyped_storage().resize_(0)
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

from codemods.api import Context, Fix, Import, Rule, replaced
from codemods.reading.code.enclosing import names_around
from codemods.reading.edits.layout import line_before

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
    if not isinstance(handle.value, (cst.Name, cst.Attribute)):
        return None
    unit, item = ctx.quote(handle.value), ctx.named(Import("torch.distributed.tensor", "DTensor"), call)
    name = next(each for each in ("param", "unit_param") if each not in names_around(ctx, call))
    lines = [
        f"{unit}.reshard()",
        f"for {name} in {unit}.parameters():",
        f"{ctx.indent}if isinstance({name}, {item.local}):",
        f"{ctx.indent * 2}{name}.to_local().untyped_storage().resize_(0)",
    ]
    message = "what freed a flat parameter frees the unit's shards"
    return replaced(CODE, ctx, call, (ctx.newline + line_before(ctx, call)).join(lines), message, [item])


RULE = Rule(CODE, "freed-flat-parameter", __doc__, nodes=(cst.Call,), fix=fix)
