"""**What it does.** Finds counts and sizes of a wrapped model's parameters.

**Why.** FSDP1's parameters were this rank's shards: 339 and 344 elements on two ranks. FSDP2's say the size of the
whole, 683 on both (torch 2.13). A factor of the number of ranks, or an all-reduce of the count, counts them twice.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def size(net, ranks):
    model = FSDP(net)
    return sum(p.numel() for p in model.parameters()) * ranks
```

## Use instead

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def size(net):
    count = sum(p.numel() for p in net.parameters())
    return FSDP(net), count
```

## Fix safety

Nothing is changed. Where the number is only printed or logged there is nothing to do; elsewhere count before the model
is wrapped, or take the factor away. The size of one named parameter is not reported: FSDP1 gave that of a shard, so
that working code asks before the wrap.

## References

- https://docs.pytorch.org/docs/stable/distributed.tensor.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.parameters.of_model import READERS, readings
from codemods.reading.parameters.shown import is_only_shown

CODE = "FM422"

_SIZES = frozenset({"nelement", "numel", "shape", "size"})


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each loop over parameters."""
    for reading in readings(ctx):
        in_loop = isinstance(reading.node, cst.Call)
        measured = [param for param in reading.seen(ctx) if _is_measured(param, ctx)] if in_loop else []
        if not measured:
            continue
        shown = all(is_only_shown(_measure(param, ctx), ctx) for param in measured)
        message, hint = (_SHOWN, "") if shown else (_COUNTED, _HINT)
        yield finding(CODE, Level.REVIEW, ctx, reading.node, message, hint)


_COUNTED = "sizes of parameters: FSDP1 counted this rank's shards, FSDP2 counts whole parameters"
_SHOWN = "sizes of parameters are shown: FSDP1 counted this rank's shards, FSDP2 counts whole parameters"
_HINT = "take a factor of the number of ranks, or an all-reduce of the count, away"


def _measure(param: cst.BaseExpression, ctx: Context) -> cst.BaseExpression:
    """All of `p.data.numel()`."""
    outer = ctx.parent(param)
    while isinstance(outer, cst.Attribute) or (isinstance(outer, cst.Call) and outer.func is param):
        param, outer = outer, ctx.parent(outer)
    return param


def _is_measured(param: cst.BaseExpression, ctx: Context) -> bool:
    """`p.numel()`, `p.data.shape`, `p.grad.size()`, and not one size of it: `p.size(0)`."""
    outer = ctx.parent(param)
    while isinstance(outer, (cst.Attribute, cst.Call)):
        if isinstance(outer, cst.Attribute) and outer.attr.value in _SIZES:
            call = ctx.parent(outer)
            return not isinstance(call, cst.Call) or call.func is not outer or not call.args
        if isinstance(outer, cst.Attribute) and outer.attr.value not in {"data", "detach", "grad"}:
            return False
        outer = ctx.parent(outer)
    return False


CHECK = Check(CODE, "parameter-count", __doc__, words=READERS, find=find)
