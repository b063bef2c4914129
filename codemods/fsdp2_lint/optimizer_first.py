"""**What it does.** Finds an optimizer that is built from a model's parameters before `fully_shard`.

**Why.** `fully_shard` puts new parameters in the place of the old ones. An optimizer that holds the old ones updates
nothing, without an error: the loss goes on changing with the data, and the whole model stays in memory (0 of 16
parameters moved, measured on torch 2.13).

## Example

```python
import torch
from torch.distributed.fsdp import fully_shard


def set_up(model):
    optimizer = torch.optim.AdamW(model.parameters())
    fully_shard(model)
    return optimizer
```

## Use instead

```python
import torch
from torch.distributed.fsdp import fully_shard


def set_up(model):
    fully_shard(model)
    return torch.optim.AdamW(model.parameters())
```

## Fix safety

Nothing is changed. Code that writes to `param_groups`, or that hands over with a function called `rebind_...`, is left
alone.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.optimizers.prewrap import early_holders
from codemods.reading.own_fsdp2.shardings import WORDS, fully_shard_calls

CODE = "FM502"

_MESSAGE = "an optimizer is built before the model is sharded, and will update nothing"
_HINT = "build it below the last fully_shard"

_HANDED_OVER = re.compile(r"rebind|param_groups|data_ptr")


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each optimizer."""
    for call, _ in fully_shard_calls(ctx):
        for early in early_holders(ctx, call):
            scopes = [(early.file, early.site), *((step.file, step.site) for step in early.inner)]
            if any(_HANDED_OVER.search(where.code(where.scope(site))) for where, site in scopes):
                continue
            for holder in early.holders:
                if holder.is_optimizer:
                    yield finding(CODE, Level.MANUAL, early.file, holder.call, _MESSAGE, _HINT)


CHECK = Check(CODE, "optimizer-before-fully-shard", __doc__, words=WORDS, find=find)
