"""**What it does.** Takes this rank's piece of each gradient, `p.grad.to_local()`, or parameter, where a function adds
their squares up over the ranks by hand, and of each whose norm becomes a plain number: `torch.tensor(norms)`.

**Why.** Under FSDP1 a gradient was this rank's shard, and such a function put the shards together. An FSDP2 gradient is
a DTensor: its norm to a power is global already, cannot be given to a collective, or is counted once a rank. A list of
such norms is no data for `torch.tensor` or NumPy, which raise.

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
same in one line. Norms that nobody adds up are of this rank's pieces, and no rank waits for another, as before; FSDP2's
pieces are other ones than FSDP1's.

## References

- https://docs.pytorch.org/docs/stable/distributed.tensor.html#torch.distributed.tensor.DTensor.to_local
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Edit, Fix, Level, Rule, finding
from codemods.plan import PlannedContext
from codemods.reading.gradients.inside import added_up_by_hand, parameters_added_up
from codemods.reading.parameters.of_model import READERS
from codemods.reading.parameters.plain_numbers import norms_of_pieces

CODE = "FM214"

_ADDED = "the gradients of this rank are p.grad.to_local(): their squares are added up over the ranks by hand"
_ADDED_PARAMETERS = "the parameters of this rank are p.to_local(): their squares are added up over the ranks by hand"
_TAKEN = "norms of this rank's pieces, p.to_local(), become plain numbers: FSDP2's pieces are other ones than FSDP1's"


def fix(function: cst.FunctionDef, ctx: PlannedContext) -> Fix | None:
    if not ctx.plan.wraps:
        return None
    gradients, own = added_up_by_hand(function, ctx), parameters_added_up(function, ctx)
    tensors = [*gradients, *own] or norms_of_pieces(function, ctx)
    if not tensors:
        return None
    level, message = Level.REWRITTEN, _ADDED if gradients else _ADDED_PARAMETERS
    if not gradients and not own:
        level, message = Level.REVIEW, _TAKEN
    return Fix(
        [Edit(*ctx.span(tensor), f"{ctx.quote(tensor)}.to_local()") for tensor in tensors],
        [finding(CODE, level, ctx, tensors[0], message)],
    )


RULE = Rule(CODE, "hand-written-norm", __doc__, nodes=(cst.FunctionDef,), fix=fix, methods=("grad", *READERS))
