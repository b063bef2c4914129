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


def gradient_norm(net):
    model = FSDP(net)
    total = torch.stack([p.grad.norm() ** 2 for p in model.parameters()]).sum()
    dist.all_reduce(total)
    return total.sqrt()
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def gradient_norm(net):
    model = FSDP(net)
    return torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).full_tensor()
```

## Fix safety

Nothing is changed. Compare the norms of both programs: `fsdp-migrate check --run-gpus` does.

## References

- https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.get_total_norm.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.vocabulary import Check, File, Finding, Level, finding

CODE = "FM402"

_COLLECTIVES = frozenset({"all_reduce", "reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor"})


def find(file: File) -> Iterator[Finding]:
    """One finding for each function that reads `.grad` and calls a collective of torch.distributed."""
    reading = {file.scope(node) for node in file.nodes(cst.Attribute) if node.attr.value == "grad"}
    calls: dict[cst.CSTNode, cst.Call] = {}
    for call in file.nodes(cst.Call):
        if _last(call) in _COLLECTIVES and (file.dotted(call.func) or "").startswith("torch.distributed."):
            calls.setdefault(file.scope(call), call)
    for scope, call in calls.items():
        if isinstance(scope, cst.FunctionDef) and scope in reading:
            yield finding(
                CODE,
                Level.MANUAL,
                file,
                call,
                "a collective in a function that reads gradients: FSDP2's are DTensors, whose norms can be global",
                "use torch.nn.utils.get_total_norm(grads).full_tensor() without a collective, and compare the norms",
            )


def _last(call: cst.Call) -> str | None:
    if isinstance(call.func, cst.Attribute):
        return call.func.attr.value
    return call.func.value if isinstance(call.func, cst.Name) else None


CHECK = Check(CODE, "collective-on-gradients", __doc__, words=("grad",), find=find)
