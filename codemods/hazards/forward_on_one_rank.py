"""**What it does.** Finds a forward of a wrapped model, or of its inner module, that only one rank runs inside of
`summon_full_params`.

**Why.** Inside of `summon_full_params` the parameters of FSDP1 were whole, and its `.module` ran without any
communication: rank 0 alone could sample. A unit of FSDP2 all-gathers in its own forward: the one rank waits for the
others until the timeout.

## Example

```python
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def sample(net, noise):
    model = FSDP(net)
    with FSDP.summon_full_params(model):
        if dist.get_rank() == 0:
            return model.module(noise)
```

## Use instead

```python
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def sample(net, noise):
    model = FSDP(net)
    images = model(noise)
    if dist.get_rank() == 0:
        return images
```

## Fix safety

Nothing is changed: it is reported, for you to decide. All ranks run the forward together, or rank 0 runs a plain copy
that was loaded from a full state dict.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding
from codemods.reading.forwards.calls import QUIET, model_of_forward
from codemods.reading.parameters.of_model import is_guarded, is_summoned
from codemods.reading.processes.one_rank import is_on_one_rank

CODE = "FM442"

_MESSAGE = "one rank alone runs the model here: FSDP2 all-gathers in the forward, and would wait for the others"
_HINT = "run the forward on all ranks, and keep the result on one"


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each call."""
    for call in ctx.nodes(cst.Call):
        if not is_summoned(call, ctx) or not (is_on_one_rank(call, ctx) or is_guarded(call, ctx)):
            continue
        if _runs_model(call, ctx):
            yield finding(CODE, Level.MANUAL, ctx, call, _MESSAGE, _HINT)


def _runs_model(call: cst.Call, ctx: Context) -> bool:
    """`model(x)`, `model.generate(x)`, and the same of `model.module`."""
    if model_of_forward(call, ctx) is not None:
        return True
    inner = call.func.value if isinstance(call.func, cst.Attribute) and call.func.attr.value != "module" else call.func
    if not isinstance(inner, cst.Attribute) or inner.attr.value != "module":
        return False
    method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
    return ModelKind.FSDP in ctx.kinds(inner.value) and method not in QUIET


CHECK = Check(CODE, "forward-on-one-rank", __doc__, words=("summon_full_params",), find=find)
