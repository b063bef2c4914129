"""**What it does.** Broadcasts this rank's piece of a sharded parameter, `v.detach().to_local()`, where a program goes
over the modules of a wrapped model and broadcasts their parameters over a group of its own.

**Why.** `dist.broadcast` takes plain tensors, and an FSDP2 parameter is a DTensor (`NotImplementedError`). Under FSDP1
it was this rank's piece: the ranks of a model-parallel group hold the same pieces of the parameters that they share.

## Example

```python
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def share(net, group):
    model = FSDP(net)
    for module in model.modules():
        for v in module._parameters.values():
            if v is not None:
                dist.broadcast(v, src=0, group=group)
    return model
```

## Use instead

```python
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def share(net, group):
    model = fully_shard(net)
    for module in model.modules():
        for v in module._parameters.values():
            if v is not None:
                dist.broadcast(v.detach().to_local(), src=0, group=group)
    return model
```

## Fix safety

The piece shares its memory with the parameter. Only a broadcast over a named group is rewritten: the ranks that FSDP
shards over hold different pieces. Where the model may be a plain one, or ignores some, each is asked for its type.

## References

- https://docs.pytorch.org/docs/stable/distributed.tensor.html#torch.distributed.tensor.DTensor.to_local
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Edit, Fix, Import, Level, ModelKind, Rule, finding
from codemods.plan import PlannedContext
from codemods.reading.left_out import may_ignore_parameters
from codemods.reading.shards_of_modules import broadcast_shard, model_of_shard

CODE = "FM215"


def match(node: cst.CSTNode, ctx: PlannedContext) -> cst.Name | None:
    return broadcast_shard(node, ctx) if isinstance(node, cst.Call) and ctx.plan.wraps else None


def edit(value: cst.Name, ctx: PlannedContext) -> Fix:
    model, name = model_of_shard(value, ctx), ctx.quote(value)
    piece, imports = f"{name}.detach().to_local()", []
    if model is None or ctx.kinds(model) != {ModelKind.FSDP} or may_ignore_parameters(ctx, model):
        imports.append(ctx.named(Import("torch.distributed.tensor", "DTensor"), value))
        piece = f"{piece} if isinstance({name}, {imports[0].local}) else {name}"
    message = f"what is broadcast of a sharded parameter is this rank's piece, `{value.value}.detach().to_local()`"
    return Fix([Edit(*ctx.span(value), piece)], [finding(CODE, Level.REWRITTEN, ctx, value, message)], imports)


RULE: Rule[cst.Name] = Rule(
    CODE, "broadcast-of-shards", __doc__, nodes=(cst.Call,), methods=("broadcast",), match=match, edit=edit
)
