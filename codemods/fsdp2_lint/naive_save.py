"""**What it does.** Finds `torch.save(model.state_dict(), ...)` of a sharded model.

**Why.** The state dict of an FSDP2 model holds DTensors: each rank would write its own shards, to the same file, one
over the other, and what is left can only be read by a process group of the same shape.

## Example

```python
import torch
from torch.distributed.fsdp import fully_shard


def train(model, path):
    fully_shard(model)
    torch.save(model.state_dict(), path)
```

## Use instead

```python
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


def train(model, path):
    fully_shard(model)
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        torch.save(state, path)
```

## Fix safety

Nothing is changed. A call that names a rank is left alone: there each rank writes a file of its own. So is one where
the model holds its whole parameters (`full_params` of the support module).

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.code.places import place
from codemods.reading.code.words import last_name
from codemods.reading.own_fsdp2.shardings import WORDS, sharded_above

CODE = "FM506"

_MESSAGE = "each rank saves its own shards of the model to the same file"
_HINT = "save with torch.distributed.checkpoint, or gather with get_model_state_dict and full_state_dict=True"

_WHOLE = frozenset({"full_params", "summon_full_params"})


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each state dict that is saved as it is."""
    for call in ctx.nodes(cst.Call):
        if ctx.dotted(call.func) != "torch.save" or "rank" in ctx.code(call) or not call.args:
            continue
        for read in ctx.inside(call.args[0].value):
            if isinstance(read, cst.Call) and isinstance(read.func, cst.Attribute) and not read.args:
                model = place(read.func.value)
                named = read.func.attr.value == "state_dict" and model is not None
                if named and model is not None and sharded_above(ctx, read, model) and not _is_whole(read, model, ctx):
                    yield finding(CODE, Level.MANUAL, ctx, read, _MESSAGE, _HINT)


def _is_whole(read: cst.Call, model: str, ctx: Context) -> bool:
    """Whether the model holds its whole parameters there: `with full_params(model):`, of the support module."""
    entered = [item.item for n in ctx.ancestors(read) if isinstance(n, cst.With) for item in n.items]
    calls = [each for each in entered if isinstance(each, cst.Call) and each.args]
    return any(last_name(call.func) in _WHOLE and place(call.args[0].value) == model for call in calls)


CHECK = Check(CODE, "naive-save-of-shards", __doc__, words=WORDS, find=find)
