"""**What it does.** Finds code inside of `no_sync` that looks at gradients.

**Why.** Under FSDP1 `p.grad` is the whole, unsynchronised gradient there. FSDP2 keeps it out of sight: `p.grad` is None
until a synchronised backward (torch 2.13), so a clipping, a log or a test for None does something else.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def step(net, batch):
    model = FSDP(net)
    with model.no_sync():
        model(batch).sum().backward()
        return [p.grad is None for p in model.parameters()]
```

## Use instead

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def step(net, batch):
    model = FSDP(net)
    with model.no_sync():
        model(batch).sum().backward()
    model(batch).sum().backward()
    return [p.grad is None for p in model.parameters()]
```

## Fix safety

Nothing is changed.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding

CODE = "FM423"


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each block of `no_sync`."""
    blocks: dict[cst.With, cst.Attribute] = {}
    for attribute in ctx.nodes(cst.Attribute):
        if attribute.attr.value != "grad" or ctx.dotted(attribute) is not None:
            continue
        for block in ctx.ancestors(attribute):
            if isinstance(block, cst.With) and _accumulates(block, ctx):
                blocks.setdefault(block, attribute)
    for attribute in blocks.values():
        yield finding(
            CODE,
            Level.MANUAL,
            ctx,
            attribute,
            "gradients are looked at inside of no_sync, where FSDP2 has none to show",
            "look at them behind the synchronised backward",
        )


def _accumulates(block: cst.With, ctx: Context) -> bool:
    """Whether a block is entered by `no_sync` of a wrapped model."""
    for item in block.items:
        for node in ctx.inside(item.item):
            if (
                isinstance(node, cst.Attribute)
                and node.attr.value == "no_sync"
                and ModelKind.FSDP in ctx.kinds(node.value)
            ):
                return True
    return False


CHECK = Check(CODE, "gradient-inside-no-sync", __doc__, words=("grad",), find=find)
