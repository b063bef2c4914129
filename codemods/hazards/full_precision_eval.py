"""**What it does.** Finds the environment variable `FSDP_USE_FULL_PREC_IN_EVAL`.

**Why.** With it FSDP1 evaluated in float32 what it trained in mixed precision. FSDP2 does not read it: evaluation runs
in `param_dtype`, and validation losses differ a little. Training is the same.

## Example

```python
import os

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision

os.environ["FSDP_USE_FULL_PREC_IN_EVAL"] = "1"


def wrap(net):
    return FSDP(net, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision


def wrap(net):
    return FSDP(net, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
```

## Fix safety

Nothing is changed. Validation losses are not to be compared with those of older runs.

## References

- https://github.com/pytorch/pytorch/blob/main/torch/distributed/fsdp/_runtime_utils.py
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding

CODE = "FM122"
VARIABLE = "FSDP_USE_FULL_PREC_IN_EVAL"


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each place that names the variable."""
    for node in ctx.nodes(cst.SimpleString):
        if node.raw_value == VARIABLE:
            message = f"{VARIABLE} has no effect: FSDP2 evaluates in the dtype that it trains in"
            hint = "take it out, and compare validation losses with those of new runs only"
            yield finding(CODE, Level.REVIEW, ctx, node, message, hint)


CHECK = Check(CODE, "full-precision-eval", __doc__, words=(VARIABLE,), find=find)
