"""**What it does.** Finds functions that put gradients, or their norms, through a collective by hand.

**Why.** Under FSDP1 a gradient is this rank's flat shard, and such code adds the shards up. An FSDP2 gradient is a
DTensor: a norm of it can be global already, and adding it up over the ranks again makes it larger by the square root
of their number (4.73994970 became 6.703302 on 2 ranks, measured on torch 2.13). Some forms stay right, some raise,
some are silently wrong.

## Example

```python
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def gradient_norm(parameters):
    total = torch.stack([p.grad.norm() ** 2 for p in parameters]).sum()
    dist.all_reduce(total)
    return total.sqrt()


def build(net):
    return FSDP(net)
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def gradient_norm(parameters):
    return torch.nn.utils.get_total_norm([p.grad for p in parameters]).full_tensor()


def build(net):
    return FSDP(net)
```

## Fix safety

Nothing is changed; where the gradients are seen to be a sharded model's, FM214 rewrites it. Nothing is said of whole
gradients that a function adds up over all ranks, of a model that is not seen to be wrapped, nor of a class or branch
that is called DDP's: that is data parallelism of a plain model. Nor of the gradient of an input (`x.requires_grad_()`).
Code that takes `p.grad.to_local()` in the place of `p.grad` does what it did, collectives and all.
Compare the norms of both programs: `fsdp-migrate check --run-gpus` does.

## References

- https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.get_total_norm.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.leftover import uses_internals
from codemods.reading.gradients.inside import Body, added_up_by_hand, collectives_on_gradients, is_data_parallelism

CODE = "FM402"

_MESSAGE = "gradients, or what is made of them, in a collective: FSDP2's are DTensors, whose norms can be global"
_HINT = (
    "take this rank's part of each first (grad.to_local()), and the rest stays as it was; or use "
    "torch.nn.utils.get_total_norm(grads).full_tensor() without a collective"
)


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each function, or script, that gives gradients, or what it computes from them, to a collective.

    A copy of FSDP1's own clipping, which works on its handles, is told of as that.
    """
    functions: list[Body] = [ctx.top, *ctx.nodes(cst.FunctionDef)]
    for function in functions:
        calls = collectives_on_gradients(function, ctx)
        is_rewritten = isinstance(function, cst.FunctionDef) and bool(added_up_by_hand(function, ctx))
        if not calls or is_rewritten or is_data_parallelism(function, ctx):
            continue
        if not uses_internals(function, ctx):
            yield finding(CODE, Level.MANUAL, ctx, calls[0], _MESSAGE, _HINT)


CHECK = Check(CODE, "collective-on-gradients", __doc__, words=("grad",), find=find)
