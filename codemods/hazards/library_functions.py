"""**What it does.** Finds functions of other libraries that take FSDP1's wrapper and nothing else.

**Why.** Transformer Engine's `prepare_te_modules_for_fsdp` looks for FSDP1's modules and their process groups, and
raises for an FSDP2 model (`TypeError`, an `AssertionError` in older versions). It spreads the activations that are
saved for the backward over the ranks: memory, and no number. FSDP2 has nothing for it.

## Example

```python
import transformer_engine.pytorch.distributed as te
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    model = FSDP(net)
    te.prepare_te_modules_for_fsdp(model)
    return model
```

## Use instead

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    return FSDP(net)
```

## Fix safety

Nothing is changed: without the call the program trains the same, and may need more memory than there is.

## References

- https://github.com/NVIDIA/TransformerEngine/blob/main/transformer_engine/pytorch/distributed.py
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Finding, Level, finding
from codemods.plan import PlannedContext

CODE = "FM444"

_NAME = "prepare_te_modules_for_fsdp"
_MESSAGE = f"{_NAME} takes FSDP1's wrapper alone, and raises for an FSDP2 model"
_HINT = "take it away: it only spreads saved activations over the ranks, which costs memory without it"


def find(ctx: PlannedContext) -> Iterator[Finding]:
    """One finding for each call."""
    for call in ctx.nodes(cst.Call) if ctx.plan.migrates else ():
        name = ctx.dotted(call.func) or ""
        if name.startswith("transformer_engine.") and name.endswith(f".{_NAME}"):
            yield finding(CODE, Level.MANUAL, ctx, call, _MESSAGE, _HINT)


CHECK = Check(CODE, "function-for-fsdp1", __doc__, words=(_NAME,), find=find)
