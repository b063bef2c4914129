"""**What it does.** Finds a gathering of sharded parameters that only one rank comes to.

**Why.** `full_tensor()` and a full state dict are collectives: every rank has to take part. Under `if rank == 0:` the
one rank waits for the others until the timeout.

## Example

```python
import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


def save(model, rank, path):
    fully_shard(model)
    if rank == 0:
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        torch.save(state, path)
```

## Use instead

```python
import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


def save(model, rank, path):
    fully_shard(model)
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.save(state, path)
```

## Fix safety

Nothing is changed. Only conditions that name a rank or the main process are taken for one.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
- https://docs.pytorch.org/docs/stable/distributed.tensor.html#torch.distributed.tensor.DTensor.full_tensor
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.processes.one_rank import is_on_one_rank

CODE = "FM505"

_MESSAGE = "sharded parameters are gathered on one rank only, which waits for the others"
_HINT = "gather on every rank, and let one of them write"

_GETTERS = frozenset({"get_model_state_dict", "get_state_dict", "get_optimizer_state_dict"})


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each gathering."""
    if not ctx.mentions("fully_shard", "FSDPModule"):
        return
    for call in ctx.nodes(cst.Call):
        if _is_gathering(ctx, call) and is_on_one_rank(call, ctx):
            yield finding(CODE, Level.MANUAL, ctx, call, _MESSAGE, _HINT)


def _is_gathering(ctx: Context, call: cst.Call) -> bool:
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "full_tensor":
        return not call.args
    dotted = ctx.dotted(call.func) or ""
    if not dotted.startswith("torch.distributed.checkpoint.") or dotted.rsplit(".", 1)[-1] not in _GETTERS:
        return False
    given = [a.value for a in call.args if a.keyword is not None and a.keyword.value == "options"]
    made = [origin for value in given for origin in ctx.origins(value) if origin.node is not None]
    return any("full_state_dict=True" in origin.file.code(origin.node) for origin in made if origin.node is not None)


CHECK = Check(CODE, "gather-on-one-rank", __doc__, words=("full_tensor", *sorted(_GETTERS)), find=find)
