"""**What it does.** Finds writes to an index or slice of a wrapped model's parameter, `model.out.weight[3].zero_()`,
and of a tensor made like one: `mask = torch.zeros_like(weight.grad)`, then `mask[3] = 1`.

**Why.** On a DTensor `w[3].zero_()` and `mask[ids] = ones` do nothing, without an error, and `w[3:4] = 0` raises
(torch 2.13). Under FSDP1 it wrote to this rank's flat shard.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def forget_padding(net, padding):
    model = FSDP(net)
    model.embedding.weight.data[padding].zero_()
```

## Use instead

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def forget_padding(net, padding):
    model = FSDP(net)
    with FSDP.summon_full_params(model):
        model.embedding.weight.data[padding].zero_()
```

## Fix safety

Nothing is changed. Inside of `summon_full_params` parameters are whole, under FSDP1 and after the rewrite, and what is
written is kept.

## References

- https://docs.pytorch.org/docs/stable/distributed.tensor.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.code.enclosing import is_self
from codemods.reading.code.shapes import indexed_front
from codemods.reading.models.plain_objects import is_plain_self
from codemods.reading.parameters.of_model import READERS
from codemods.reading.parameters.sharded_values import VIEWS, is_sharded

CODE = "FM421"


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each function and what it writes to."""
    told = set()
    for part in ctx.nodes(cst.Subscript):
        written = (ctx.scope(part), ctx.code(part.value))
        if written in told or not _is_written(part, ctx) or _is_own(part.value, ctx):
            continue
        if is_sharded(part.value, ctx):
            told.add(written)
            message = (
                f"`{' '.join(ctx.code(part).split())}` writes to a part of a sharded tensor:"
                " on a DTensor it can be lost without a word"
            )
            hint = (
                "write inside of summon_full_params, or to the whole: p.copy_(distribute_tensor(full, p.device_mesh,"
                " p.placements))"
            )
            yield finding(CODE, Level.MANUAL, ctx, part, message, hint)


def _is_own(tensor: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a module initialises itself: once it was sharded, FSDP1's flat views had no such index either."""
    owner = indexed_front(tensor)
    return is_self(owner, ctx) and not is_plain_self(ctx, owner)


def _is_written(part: cst.Subscript, ctx: Context) -> bool:
    """Whether it is assigned to, or a method that changes it in place is called: `w[3].data.zero_()`."""
    node: cst.CSTNode = part
    above = ctx.parent(node)
    while isinstance(above, cst.Attribute) and above.attr.value in VIEWS:
        node, above = above, ctx.parent(above)
    if isinstance(above, cst.Attribute):
        call = ctx.parent(above)
        name = above.attr.value
        return isinstance(call, cst.Call) and call.func is above and name.endswith("_") and not name.startswith("_")
    return isinstance(above, cst.AssignTarget) or (isinstance(above, cst.AugAssign) and above.target is node)


CHECK = Check(CODE, "write-to-an-index", __doc__, words=(*READERS, "weight", "bias"), find=find)
