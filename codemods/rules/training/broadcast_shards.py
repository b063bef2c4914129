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

from codemods.api import Context, Edit, Fix, Import, ModelKind, Rule, rewritten
from codemods.plan import PlannedContext
from codemods.reading.code.shapes import went_over
from codemods.reading.wraps.left_out import may_ignore_parameters
from codemods.reading.wraps.process_groups import is_default

CODE = "FM215"


def fix(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    value = broadcast_shard(call, ctx) if ctx.plan.wraps else None
    if value is None:
        return None
    model, name = model_of_shard(value, ctx), ctx.quote(value)
    piece, imports = f"{name}.detach().to_local()", []
    if model is None or ctx.kinds(model) != {ModelKind.FSDP} or may_ignore_parameters(ctx, model):
        imports.append(ctx.named(Import("torch.distributed.tensor", "DTensor"), value))
        piece = f"{piece} if isinstance({name}, {imports[0].local}) else {name}"
    message = f"what is broadcast of a sharded parameter is this rank's piece, `{value.value}.detach().to_local()`"
    return rewritten(CODE, ctx, value, [Edit(*ctx.span(value), piece)], message, imports)


_BROADCAST = "torch.distributed.broadcast"
_WALKS = frozenset({"modules", "named_modules", "children", "named_children"})
_GROUP = 2
"""The place of the group among the arguments of a broadcast."""


def broadcast_shard(call: cst.Call, ctx: Context) -> cst.Name | None:
    """What `dist.broadcast(v, src, group=other)` gets, where `v` is a parameter of a module of a wrapped model.

    The group is named, and not that of all ranks: its ranks have the same piece of the same parameter.
    """
    if ctx.dotted(call.func) != _BROADCAST or not call.args or any(argument.star for argument in call.args):
        return None
    groups = [a.value for a in call.args if a.keyword is not None and a.keyword.value == "group"]
    groups += [a.value for a in call.args[_GROUP : _GROUP + 1] if a.keyword is None]
    value, keyword = call.args[0].value, call.args[0].keyword
    is_tensor = keyword is None or keyword.value == "tensor"
    if len(groups) != 1 or is_default(ctx, groups[0]) or not is_tensor:
        return None
    return value if isinstance(value, cst.Name) and model_of_shard(value, ctx) is not None else None


def model_of_shard(value: cst.Name, ctx: Context) -> cst.BaseExpression | None:
    """`model`, of `for module in model.modules():` and `for v in module._parameters.values():`."""
    table = next(
        (over for over in _iterated(value, ctx) for over in _with_bound(over, ctx) if _tables(over, ctx)), None
    )
    if table is None:
        return None
    for module in _tables(table, ctx):
        for over in _iterated(module, ctx):
            for walk in _with_bound(over, ctx):
                if isinstance(walk, cst.Call) and isinstance(walk.func, cst.Attribute):
                    model = walk.func.value
                    if walk.func.attr.value in _WALKS and ModelKind.FSDP in ctx.kinds(model):
                        return model
    return None


def _iterated(name: cst.Name, ctx: Context) -> list[cst.BaseExpression]:
    """What the loops around a name go over whose variable it is."""
    turns = (went_over(node) for node in ctx.ancestors(name) if isinstance(node, cst.For))
    return [over for target, over in turns if name.value in {n.value for n in _names(target, ctx)}]


def _names(target: cst.CSTNode, ctx: Context) -> list[cst.Name]:
    return [node for node in ctx.inside(target) if isinstance(node, cst.Name)]


def _with_bound(over: cst.BaseExpression, ctx: Context) -> list[cst.BaseExpression]:
    """An expression, and what the name at its start is bound to: `members` of `members.items()`."""
    owner = over
    while isinstance(owner, (cst.Call, cst.Attribute)):
        owner = owner.func if isinstance(owner, cst.Call) else owner.value
    bound = ctx.bound(owner) or () if isinstance(owner, cst.Name) else ()
    return [over, *(made for where, made in bound if where.path == ctx.path)]


def _tables(expression: cst.BaseExpression, ctx: Context) -> list[cst.Name]:
    """`module` of `module._parameters`."""
    inside = (node for node in ctx.inside(expression) if isinstance(node, cst.Attribute))
    return [n.value for n in inside if n.attr.value == "_parameters" and isinstance(n.value, cst.Name)]


RULE = Rule(CODE, "broadcast-of-shards", __doc__, nodes=(cst.Call,), fix=fix, methods=("broadcast",))
