"""**What it does.** Finds subclasses of `FullyShardedDataParallel`, and the calls that make one. Nothing in their file,
nor in what shares a model with it, is changed. A class that inherits Lightning's FSDP strategy, and wraps the model, is
left as well: what it inherits saves, loads and clips by FSDP1's wrapper.

**Why.** `fully_shard` shards a module in place: there is no wrapper to inherit from. What a subclass overrides
(`forward`, `state_dict`, a `train_step` that must run through the wrapper) has to go to the model itself, and only its
author knows what it was for. With a part of the program rewritten, the rest would still make FSDP1 models.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Sharded(FSDP):
    def train_step(self, batch):
        return self(batch).mean()


def build(net):
    return Sharded(net)
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method


def build(net):
    model = fully_shard(net)
    register_fsdp_forward_method(model, "train_step")
    return model
```

## Fix safety

Nothing is changed. A method that calls the model by another name than `forward` needs `register_fsdp_forward_method`,
which gathers the parameters before it.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.register_fsdp_forward_method
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, KeepReason, Level, finding
from codemods.plan import PlannedContext
from codemods.reading.wrappers.lightning_strategies import is_fsdp1_strategy
from codemods.tables.names import WRAPPER

CODE = "FM108"

_HINT = "move what it overrides to the model itself, shard that with fully_shard, and run again"
_LIGHTNING_HINT = "inherit ModelParallelStrategy, and call fully_shard in configure_model"


def find(ctx: PlannedContext) -> Iterator[Finding]:
    """The subclasses of a file, where the program makes one, and the FSDP1 that serves such models."""
    bases = set()
    for definition, base in definitions(ctx):
        bases.add(base)
        name = definition.name.value
        if ctx.fsdp1(base) != WRAPPER:
            message = f"{name} inherits Lightning's FSDP strategy, which saves, loads and clips by FSDP1's wrapper"
            yield finding(CODE, Level.MANUAL, ctx, base, message, _LIGHTNING_HINT)
            continue
        message = f"{name} is a subclass of FullyShardedDataParallel, which has no FSDP2 counterpart"
        yield finding(CODE, Level.MANUAL, ctx, base, message, _HINT)
        for where, used in ctx.references_to(definition):
            call = where.parent(used)
            if isinstance(call, cst.Call) and call.func is used:
                place = KeepReason(ctx, definition).place
                message = f"this wraps with {name}, a subclass of FSDP that is left as it is ({place})"
                yield finding(CODE, Level.KEPT, where, call, message, _HINT)
    subclass = ctx.plan.subclass(ctx.path)
    if subclass is None:
        return
    name = cst.ensure_type(subclass.node, cst.ClassDef).name.value
    message = f"FSDP1 is left as it is here: it shares code with {name} ({subclass.place})"
    for node, _ in ctx.references():
        if node not in bases:
            yield finding(CODE, Level.KEPT, ctx, node, message, _HINT)


def definitions(ctx: Context) -> list[tuple[cst.ClassDef, cst.BaseExpression]]:
    """The subclasses that a file defines, each with the base that makes it one."""
    return [
        (definition, base.value)
        for definition in ctx.nodes(cst.ClassDef)
        for base in definition.bases
        if ctx.fsdp1(base.value) == WRAPPER or (is_fsdp1_strategy(ctx.dotted(base.value)) and _wraps(definition, ctx))
    ]


def _wraps(definition: cst.ClassDef, ctx: Context) -> bool:
    return any(isinstance(node, cst.Call) and ctx.fsdp1(node.func) == WRAPPER for node in ctx.inside(definition))


CHECK = Check(CODE, "fsdp-subclass", __doc__, words=("FullyShardedDataParallel", "fsdp"), find=find)
