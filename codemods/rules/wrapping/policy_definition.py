"""**What it does.** Turns an auto-wrap policy that is made away from the constructor call into the tuple of its
classes.

**Why.** FSDP2 has no policies. The loop that replaces the constructor call asks `isinstance(module, classes)`, so
the place that made the policy makes the classes now, and everything in between, functions and imports, goes on as
it was.

## Example

```python
from functools import partial

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


class Block:
    pass


def get_policy():
    return partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})


def shard(model):
    return FSDP(model, auto_wrap_policy=get_policy())
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard


class Block:
    pass


def get_policy():
    return (Block,)


def shard(model):
    unit_classes = get_policy()
    for module in model.modules():
        if module is not model and isinstance(module, unit_classes):
            fully_shard(module)
    return fully_shard(model)
```

## Fix safety

Done only where every constructor call that the policy can reach is rewritten into such a loop.

## References

- https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Edit, Fix, Level, NotStatic, Origin, Rule, finding
from codemods.plan import PlannedContext
from codemods.reading.layout import comments_in, insertion
from codemods.reading.policies import class_tuple, policy_classes

CODE = "FM102"


def match(node: cst.CSTNode, ctx: PlannedContext) -> Origin | None:
    origin = Origin(ctx, node)
    if node not in ctx.plan.changed:
        return None
    try:
        policy_classes(origin)
    except NotStatic:
        return None
    return origin


def edit(found: Origin, ctx: Context) -> Fix:
    assert found.node is not None
    text = class_tuple(ctx, policy_classes(found))
    edits = [Edit(*ctx.bare_span(found.node), text)]
    comments = comments_in(ctx.code(found.node))
    if comments:
        edits.append(insertion(ctx, found.node, comments))
    return Fix(
        edits=edits,
        findings=[
            finding(CODE, Level.REWRITTEN, ctx, found.node, f"auto-wrap policy becomes the classes {ctx.plain(text)}")
        ],
    )


RULE: Rule[Origin] = Rule(
    CODE, "auto-wrap-policy-definition", __doc__, nodes=(cst.Call,), methods=(), match=match, edit=edit
)
