"""**What it does.** Finds uses of fairscale's FSDP, which is not torch's and is left as it is.

**Why.** fairscale's `FullyShardedDataParallel` came before torch's, and has other arguments, other state dicts and
other defaults under the same names: a rewrite that takes one for the other trains something else.

## Example

```python
from fairscale.nn.data_parallel import FullyShardedDataParallel as FSDP


def shard(model):
    return FSDP(model, reshard_after_forward=True)
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard


def shard(model):
    return fully_shard(model)
```

## Fix safety

Nothing is changed.

## References

- https://github.com/facebookresearch/fairscale
- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding

CODE = "FM113"

_NAMES = frozenset({"FullyShardedDataParallel", "auto_wrap", "default_auto_wrap_policy", "enable_wrap", "wrap"})


def find(ctx: Context) -> Iterator[Finding]:
    """Where a file uses fairscale's FSDP."""
    for node in (*ctx.nodes(cst.Name), *ctx.nodes(cst.Attribute)):
        dotted = ctx.dotted(node) or ""
        name = dotted.rpartition(".")[2]
        if not dotted.startswith("fairscale.") or name not in _NAMES or isinstance(ctx.parent(node), cst.AssignTarget):
            continue
        is_part = isinstance(ctx.parent(node), cst.Attribute)
        if not is_part and not any(isinstance(outer, (cst.Import, cst.ImportFrom)) for outer in ctx.ancestors(node)):
            message = "this is fairscale's FSDP, not torch's, and is left as it is"
            hint = "move from fairscale to torch.distributed.fsdp, or straight to fully_shard, by hand"
            yield finding(CODE, Level.MANUAL, ctx, node, message, hint)


CHECK = Check(CODE, "fairscale-fsdp", __doc__, words=("fairscale",), find=find)
