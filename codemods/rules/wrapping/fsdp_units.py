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

from codemods.api import FSDP_MODULE, Context, Edit, Fix, ModelKind, Rule, replaced, rewritten
from codemods.reading.block_layout import indented
from codemods.reading.handles import is_reshard
from codemods.reading.layout import comments_in
from codemods.reading.shapes import alone
from codemods.tables.names import WRAPPER

CODE = "FM107"

_METHOD = "fsdp_modules"


def fix(call: cst.Call, ctx: Context) -> Fix | None:
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != _METHOD:
        return None
    if len(call.args) != 1 or call.args[0].star:
        return None
    if call.args[0].keyword is not None and call.args[0].keyword.value != "module":
        return None
    if ctx.fsdp1(call.func) != f"{WRAPPER}.{_METHOD}" and ModelKind.FSDP not in ctx.kinds(call.func.value):
        return None
    item = ctx.named(FSDP_MODULE, call)
    message = "fsdp_modules becomes a list of the modules that are an FSDPModule"
    loop = _short_loop(call, ctx)
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


def _short_loop(call: cst.Call, ctx: Context) -> cst.For | None:
    """`for unit in FSDP.fsdp_modules(model): unit.reshard()`: a loop that calls something of each, and changes no model
    while it goes over it."""
    loop = ctx.parent(call)
    if not isinstance(loop, cst.For) or loop.iter is not call or loop.orelse is not None or comments_in(ctx.code(loop)):
        return None
    line = _only(loop.body)
    if isinstance(line, cst.If) and line.orelse is None:
        line = _only(line.body)
    small = alone(line)
    called = small.value.func if isinstance(small, cst.Expr) and isinstance(small.value, cst.Call) else None
    is_own = isinstance(called, cst.Attribute) and ctx.code(called.value) == ctx.code(loop.target)
    return loop if called is not None and (is_own or is_reshard(called, ctx)) else None


def _only(block: cst.BaseSuite) -> cst.CSTNode | None:
    return block.body[0] if isinstance(block, cst.IndentedBlock) and len(block.body) == 1 else None


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


RULE = Rule(CODE, "fsdp-modules", __doc__, nodes=(cst.Call,), fix=fix, methods=(_METHOD,))
