"""**What it does.** Finds communication hooks: `model.register_comm_hook(state, hook)`.

**Why.** An FSDP2 model has no such method. What the hooks for half precision did is a dtype now: the gradients are
equal (difference 0.0, torch 2.13). Hooks such as PowerSGD have no counterpart.

## Example

```python
from torch.distributed.algorithms._comm_hooks.default_hooks import LowPrecisionState, bf16_compress_hook
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net, group):
    model = FSDP(net)
    model.register_comm_hook(LowPrecisionState(group), bf16_compress_hook)
    return model
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision


def build(net):
    return FSDP(net, mixed_precision=MixedPrecision(reduce_dtype=torch.bfloat16))
```

## Fix safety

Nothing is changed, and the call raises: an FSDP2 model has no such method.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.MixedPrecisionPolicy
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding
from codemods.tables.leftovers import COMM_HOOK


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each hook of a wrapped model."""
    for attribute in ctx.nodes(cst.Attribute):
        if attribute.attr.value != "register_comm_hook" or ctx.fsdp1(attribute) is not None:
            continue
        if ModelKind.FSDP in ctx.kinds(attribute.value):
            yield finding(COMM_HOOK.code, Level.MANUAL, ctx, attribute, COMM_HOOK.message, COMM_HOOK.hint)


CHECK = Check(COMM_HOOK.code, COMM_HOOK.name, __doc__, words=("register_comm_hook",), find=find)
