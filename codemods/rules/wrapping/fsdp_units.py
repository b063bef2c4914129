"""**What it does.** Rewrites `FSDP.fsdp_modules(model)` into a list of the modules that are an `FSDPModule`.

**Why.** On an FSDP2 model the function returns an empty list, and says nothing: a loop over it does nothing.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def count_units(net):
    model = FSDP(net)
    return len(FSDP.fsdp_modules(model))
```

## Use instead

```python
from torch.distributed.fsdp import FSDPModule, fully_shard


def count_units(net):
    model = fully_shard(net)
    return len([m for m in model.modules() if isinstance(m, FSDPModule)])
```

## Fix safety

The same units in the same order, those without parameters left out: FSDP2 has no empty ones. What is then done with
a unit's handle or flat parameter is reported by its own rule. With `root_only`, the call is reported and raises.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.FSDPModule
"""

from __future__ import annotations

import re

import libcst as cst

from codemods.api import FSDP_MODULE, Context, Edit, Fix, Rule, replaced, rewritten
from codemods.reading.edits.block_layout import indented
from codemods.reading.units.loops import METHOD, gives_units, short_loop

CODE = "FM107"


def fix(call: cst.Call, ctx: Context) -> Fix | None:
    if not gives_units(call, ctx):
        return None
    item = ctx.named(FSDP_MODULE, call)
    message = "fsdp_modules becomes a list of the modules that are an FSDPModule"
    loop = short_loop(ctx.parent(call), ctx)
    if loop is not None:
        inner = loop.body.body[0]
        test = f"if isinstance({ctx.code(loop.target)}, {item.local}):{ctx.newline}"
        start = ctx.span(inner)[0]
        margin = ctx.text[ctx.whole_lines(inner)[0] : start]
        edits = [
            Edit(*ctx.span(call), f"{_owner(call, ctx)}.modules()"),
            Edit(start, start, f"{test}{margin}{ctx.indent}"),
            *indented(ctx, inner),
        ]
        return rewritten(CODE, ctx, call, edits, message, [item])
    model = ctx.code(call.args[0].value)
    unit = next(name for name in ("m", "unit", "fsdp_unit") if not re.search(rf"\b{name}\b", model))
    text = f"[{unit} for {unit} in {_owner(call, ctx)}.modules() if isinstance({unit}, {item.local})]"
    return replaced(CODE, ctx, call, text, message, [item], around=_listed(call, ctx))


def _listed(call: cst.Call, ctx: Context) -> cst.BaseExpression:
    """`[m for m in FSDP.fsdp_modules(model)]`, which is the list itself."""
    loop = ctx.parent(call)
    around = ctx.parent(loop) if isinstance(loop, cst.CompFor) and loop.iter is call else None
    if not isinstance(around, cst.ListComp) or not isinstance(loop, cst.CompFor) or around.for_in is not loop:
        return call
    is_plain = isinstance(around.elt, cst.Name) and not loop.ifs and loop.inner_for_in is None
    return around if is_plain and ctx.code(around.elt) == ctx.code(loop.target) else call


def _owner(call: cst.Call, ctx: Context) -> str:
    model = ctx.quote(call.args[0].value)
    simple = isinstance(call.args[0].value, (cst.Name, cst.Attribute, cst.Call, cst.Subscript))
    return model if simple else f"({model})"


RULE = Rule(CODE, "fsdp-modules", __doc__, nodes=(cst.Call,), fix=fix, methods=(METHOD,))
