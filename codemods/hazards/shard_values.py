"""**What it does.** Finds norms, means and sums of a wrapped model's parameters or gradients that are computed without
gathering them.

**Why.** On a DTensor `p.norm().item()` is the value of this rank's piece, without an error: 1.02491 and 1.26580 on two
ranks where the norm is 1.62871 (torch 2.13). Under FSDP1 it was the value of this rank's flat shard, which was another
piece. Some of these values (`std`, a norm to a power) are reduced over the ranks: on one rank alone they wait for ever.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def log(net):
    model = FSDP(net)
    return {name: p.norm().item() for name, p in model.named_parameters()}
```

## Use instead

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def log(net):
    model = FSDP(net)
    with FSDP.summon_full_params(model, writeback=False):
        return {name: p.norm().item() for name, p in model.named_parameters()}
```

## Fix safety

Nothing is changed: a value that is only logged was this rank's before, and is this rank's now. Under `if rank == 0:` it
needs a person, because it can hang. After the rewrite `p.full_tensor()` gives the whole, on all ranks together.

## References

- https://docs.pytorch.org/docs/stable/distributed.tensor.html#torch.distributed.tensor.DTensor.full_tensor
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.enclosing import enclosing
from codemods.reading.gradients import added_up_by_hand
from codemods.reading.model_parameters import READERS, Reading, is_guarded, readings

CODE = "FM420"

_REDUCTIONS = r"(norm|sum|mean|std|var|max|min|any|all|count_nonzero|abs|square|pow)\("
_METHOD = r"(\.grad|\.data|\.detach\(\)|\.float\(\)|\.abs\(\)|\.square\(\))*\." + _REDUCTIONS
_FUNCTION = r"(norm|vector_norm|isnan|isinf|isfinite|sum|mean|std|max|min|histogram|histc)\("


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each loop, or named parameter."""
    for reading in readings(ctx):
        text = ctx.code(reading.body)
        if not re.search(reading.param + _METHOD, text) and not re.search(_FUNCTION + reading.param, text):
            continue
        if "full_tensor" in text or _is_added_up(reading, ctx):
            continue
        message = "a value of this rank's piece of a parameter: FSDP2's pieces are other ones than FSDP1's"
        level = Level.REVIEW
        if is_guarded(reading.node, ctx):
            level = Level.MANUAL
            message = "a value of a sharded parameter on one rank alone: on a DTensor it can wait for the others"
        hint = "take p.full_tensor() first, on all ranks, outside of any test for the rank"
        yield finding(CODE, level, ctx, reading.node, message, hint)


def _is_added_up(reading: Reading, ctx: Context) -> bool:
    """Whether a rule makes local values of those in a function that adds them up over the ranks."""
    function = enclosing(ctx, reading.node, cst.FunctionDef)
    return function is not None and bool(added_up_by_hand(function, ctx))


CHECK = Check(CODE, "value-of-a-shard", __doc__, words=(*READERS, "weight", "bias"), find=find)
