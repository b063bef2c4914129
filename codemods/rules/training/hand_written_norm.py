"""**What it does.** Takes this rank's piece of each gradient, `p.grad.to_local()`, where a function adds their squares
up over the ranks by hand.

**Why.** Under FSDP1 a gradient was this rank's shard, and such a function put the shards together. An FSDP2 gradient is
a DTensor: its norm to a power is global already, cannot be given to a collective, or is counted once a rank.

## Example

```python
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def gradient_norm(net):
    model = FSDP(net)
    total = torch.stack([p.grad.norm() ** 2 for p in model.parameters()]).sum()
    dist.all_reduce(total)
    return total.sqrt()
```

## Use instead

```python
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def gradient_norm(net):
    model = fully_shard(net)
    total = torch.stack([p.grad.to_local().norm() ** 2 for p in model.parameters()]).sum()
    dist.all_reduce(total)
    return total.sqrt()
```

## Fix safety

The norm is the one of before (6.879554 on 2 ranks, torch 2.13), and so is what is made of it. Only 2-norms and sums of
squares that are added up are rewritten, and only gradients of a model that is seen to be sharded as a whole. Anything
else that comes to a collective is reported (FM402). `torch.nn.utils.get_total_norm(gradients).full_tensor()` is the
same in one line.

## References

- https://docs.pytorch.org/docs/stable/distributed.tensor.html#torch.distributed.tensor.DTensor.to_local
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from codemods.api import Context, Edit, Fix, Level, Rule, finding
from codemods.plan import PlannedContext
from codemods.reading.gradients import added_up_by_hand

CODE = "FM214"

_MESSAGE = "the gradients of this rank are p.grad.to_local(): their squares are added up over the ranks by hand"


def match(node: cst.CSTNode, ctx: PlannedContext) -> Sequence[cst.Attribute] | None:
    return added_up_by_hand(node, ctx) or None if isinstance(node, cst.FunctionDef) and ctx.plan.wraps else None


def edit(found: Sequence[cst.Attribute], ctx: Context) -> Fix:
    return Fix(
        [Edit(*ctx.span(gradient), f"{ctx.quote(gradient)}.to_local()") for gradient in found],
        [finding(CODE, Level.REWRITTEN, ctx, found[0], _MESSAGE)],
    )


RULE: Rule[Sequence[cst.Attribute]] = Rule(
    CODE, "hand-written-norm", __doc__, nodes=(cst.FunctionDef,), methods=("grad",), match=match, edit=edit
)
