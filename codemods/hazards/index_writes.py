"""**What it does.** Finds writes to an index or slice of a wrapped model's parameter: `model.out.weight[3].zero_()`.

**Why.** On a DTensor `w[3].zero_()` does nothing, without an error, and `w[3:4] = 0` raises (torch 2.13). Under FSDP1
it wrote to this rank's flat shard.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def forget_padding(net, padding):
    model = FSDP(net)
    model.embedding.weight.data[padding].zero_()
```

## Use instead

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def forget_padding(net, padding):
    model = FSDP(net)
    with FSDP.summon_full_params(model):
        model.embedding.weight.data[padding].zero_()
```

## Fix safety

Nothing is changed. Inside of `summon_full_params` parameters are whole, under FSDP1 and after the rewrite, and what is
written is kept.

## References

- https://docs.pytorch.org/docs/stable/distributed.tensor.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.model_parameters import READERS, readings

CODE = "FM421"

_WRITE = r"(\.data|\.grad)?\[[^\]\n]*\](\.[a-z]\w*_\(|\s*[-+*/]?=(?!=))"


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each loop, or named parameter."""
    for reading in readings(ctx):
        if re.search(reading.param + _WRITE, ctx.code(reading.body)):
            yield finding(
                CODE,
                Level.MANUAL,
                ctx,
                reading.node,
                "a write to a part of a sharded parameter: on a DTensor it can be lost without an error",
                "write inside of summon_full_params, or to the whole: p.copy_(distribute_tensor(full, p.device_mesh,"
                " p.placements))",
            )


CHECK = Check(CODE, "write-to-an-index", __doc__, words=(*READERS, "weight", "bias"), find=find)
