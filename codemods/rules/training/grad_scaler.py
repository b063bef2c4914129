"""**What it does.** Rewrites `ShardedGradScaler(...)` into `torch.amp.GradScaler(...)`.

**Why.** The sharded scaler exists because FSDP1's gradients are plain local shards: it reduces `found_inf` over
the ranks by itself. With DTensor gradients the ordinary scaler does that.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def setup(net):
    return FSDP(net), ShardedGradScaler(init_scale=1024.0)
```

## Use instead

```python
import torch
from torch.distributed.fsdp import fully_shard


def setup(net):
    return fully_shard(net), torch.amp.GradScaler(init_scale=1024.0)
```

## Fix safety

An infinity on one rank's shard makes both ranks skip the step and halve the scale, as before (torch 2.13, 2 ranks).
Where a model ignores parameters it is reported: torch's scaler raises for plain gradients beside DTensors.

## References

- https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Edit, Fix, Import, Level, Rule, finding
from codemods.plan import PlannedContext
from codemods.reading.call_layout import call_text
from codemods.reading.manual import is_constructor

CODE = "FM204"

_BECOMES = "ShardedGradScaler becomes torch.amp.GradScaler"
_MIXED = "it raises for an optimizer of ignored parameters and sharded ones: plain gradients beside DTensors"
_HINT = "nothing, where what is ignored is frozen; else give the ignored parameters an optimizer of their own"
_IGNORED = ("ignored_modules", "ignored_states")


def match(node: cst.CSTNode, ctx: Context) -> cst.Call | None:
    if not isinstance(node, cst.Call) or ctx.fsdp1(node.func) != "ShardedGradScaler":
        return None
    return node if all(argument.keyword is not None for argument in node.args) else None


def edit(call: cst.Call, ctx: PlannedContext) -> Fix:
    kept = [
        f"{argument.keyword.value}={ctx.quote(argument.value)}"
        for argument in call.args
        if argument.keyword is not None and argument.keyword.value != "process_group"
    ]
    torch = ctx.named(Import("torch"), call)
    text = call_text(ctx, call, f"{torch.local}.amp.GradScaler", ", ".join(kept))
    found = finding(CODE, Level.REWRITTEN, ctx, call, _BECOMES)
    if _ignores_parameters(ctx):
        found = finding(CODE, Level.MANUAL, ctx, call, f"{_BECOMES}; {_MIXED}", _HINT)
    return Fix([Edit(*ctx.bare_span(call), text)], [found], [torch])


def _ignores_parameters(ctx: Context) -> bool:
    """Whether a constructor call of the program names what it ignores."""
    given = [(where, call, name) for name in _IGNORED for where, call in ctx.passing(name)]
    values = [
        (where, argument.value)
        for where, call, name in given
        for argument in call.args
        if is_constructor(where, call) and argument.keyword is not None and argument.keyword.value == name
    ]
    return any(not origin.is_none for where, value in values for origin in where.origins(value))


RULE: Rule[cst.Call] = Rule(CODE, "sharded-grad-scaler", __doc__, nodes=(cst.Call,), methods=(), match=match, edit=edit)
