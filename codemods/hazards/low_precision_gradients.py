"""**What it does.** Finds `keep_low_precision_grads` in a `MixedPrecision`.

**Why.** FSDP1 then left the gradients, and with them the optimizer's step, in `param_dtype`. FSDP2's gradients always
have the dtype of the parameters that are trained: float32 for a float32 model.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision


def wrap(net):
    return FSDP(net, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, keep_low_precision_grads=True))
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision


def wrap(net):
    return FSDP(net, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
```

## Fix safety

Nothing is changed: the call becomes `shard_model` of the support module, which raises. Without the flag gradients are
more exact and take twice the memory; a model that is itself bf16, by `net.to(torch.bfloat16)` before it is sharded, has
bf16 gradients, and bf16 parameters too.

## References

- https://docs.pytorch.org/docs/stable/fsdp.html#torch.distributed.fsdp.MixedPrecision
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding

CODE = "FM121"

_MESSAGE = "keep_low_precision_grads has no counterpart: FSDP2's gradients have the dtype of the parameters"
_HINT = "drop it, or make the model itself low precision before it is sharded"


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each flag that is not the literal False."""
    for argument in ctx.nodes(cst.Arg):
        if argument.keyword is None or argument.keyword.value != "keep_low_precision_grads":
            continue
        call = ctx.parent(argument)
        made = ctx.fsdp1(call.func) if isinstance(call, cst.Call) else None
        if made == "MixedPrecision" and ctx.code(argument.value) != "False":
            yield finding(CODE, Level.MANUAL, ctx, argument, _MESSAGE, _HINT)


CHECK = Check(CODE, "low-precision-gradients", __doc__, words=("keep_low_precision_grads",), find=find)
