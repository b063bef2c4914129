"""**What it does.** Finds `p.data_ptr()` of a wrapped model's parameters.

**Why.** Every DTensor gives 0 (torch 2.13): parameters that are told apart by their pointers are all the same one,
without an error. Under FSDP1 each was a view of the flat parameter, at a place of its own. (`untyped_storage()` and
`is_set_to` raise.)

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def optimizer_of(net, optimizers):
    model = FSDP(net, use_orig_params=True)
    pointers = {p.data_ptr() for p in model.parameters()}
    return [each for each in optimizers if each.param_groups[0]["params"][0].data_ptr() in pointers]
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def optimizer_of(net, optimizers):
    model = FSDP(net, use_orig_params=True)
    parameters = {id(p) for p in model.parameters()}
    return [each for each in optimizers if id(each.param_groups[0]["params"][0]) in parameters]
```

## Fix safety

Nothing is changed. `id(p)` tells parameters apart before the migration as well. `p.to_local().data_ptr()` points to
this rank's piece, and is 0 where that is empty.

## References

- https://docs.pytorch.org/docs/stable/distributed.tensor.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.parameters.sharded_values import is_sharded

CODE = "FM447"

_POINTER = "data_ptr"


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each pointer that is asked for."""
    for call in ctx.nodes(cst.Call):
        asked = call.func
        if isinstance(asked, cst.Attribute) and asked.attr.value == _POINTER and is_sharded(asked.value, ctx):
            message = "data_ptr() of a sharded parameter is 0: every DTensor gives the same"
            yield finding(CODE, Level.MANUAL, ctx, call, message, "compare id(p), or p.to_local().data_ptr()")


CHECK = Check(CODE, "data-pointer", __doc__, words=(_POINTER,), find=find)
