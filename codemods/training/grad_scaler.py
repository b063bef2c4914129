"""**What it does.** Rewrites `ShardedGradScaler(...)` into `torch.amp.GradScaler(...)`.

**Why.** The sharded scaler exists because FSDP1's gradients are plain local shards: it reduces `found_inf` over
the ranks by itself. With DTensor gradients the ordinary scaler does that.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def setup(net):
    return FSDP(net), ShardedGradScaler(init_scale=1024.0)
```

## Use instead

```python
import torch
from torch.distributed.fsdp import fully_shard


def setup(net):
    return fully_shard(net), torch.amp.GradScaler(init_scale=1024.0)
```

## Fix safety

An infinity on one rank's shard makes both ranks skip the step and halve the scale, as before (torch 2.13, 2 ranks).

## References

- https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler
"""

from __future__ import annotations

import libcst as cst

from codemods.reading.call_layout import call_text
from codemods.vocabulary import Edit, File, Import, Level, Outcome, Rule, finding

CODE = "FM204"


def match(node: cst.CSTNode, file: File) -> cst.Call | None:
    if not isinstance(node, cst.Call) or file.fsdp1(node.func) != "ShardedGradScaler":
        return None
    return node if all(argument.keyword is not None for argument in node.args) else None


def edit(call: cst.Call, file: File) -> Outcome:
    kept = [
        f"{argument.keyword.value}={file.code(argument.value)}"
        for argument in call.args
        if argument.keyword is not None and argument.keyword.value != "process_group"
    ]
    torch = file.named(Import("torch"), call)
    text = call_text(file, call, f"{torch.local}.amp.GradScaler", ", ".join(kept))
    return Outcome(
        edits=[Edit(*file.span(call), text)],
        findings=[finding(CODE, Level.REWRITTEN, file, call, "ShardedGradScaler becomes torch.amp.GradScaler")],
        imports=[torch],
    )


RULE: Rule[cst.Call] = Rule(CODE, "sharded-grad-scaler", __doc__, nodes=(cst.Call,), methods=(), match=match, edit=edit)
