"""**What it does.** Rewrites the annotations of settings that have become FSDP2's own.

**Why.** A variable, a parameter or a function that is said to be a `ShardingStrategy` holds keyword arguments of
`fully_shard` now, and what was a `MixedPrecision` is a `MixedPrecisionPolicy`.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


def wrap(net, zero2: bool):
    strategy: ShardingStrategy = ShardingStrategy.SHARD_GRAD_OP if zero2 else ShardingStrategy.FULL_SHARD
    return FSDP(net, sharding_strategy=strategy)
```

## Use instead

```python
import torch
from torch.distributed.fsdp import fully_shard


def wrap(net, zero2: bool):
    fsdp_kwargs: dict = {"reshard_after_forward": False} if zero2 else {}
    return fully_shard(net, **fsdp_kwargs)
```

## Fix safety

Only where all that is seen to stand there is rewritten for `fully_shard`, or is None.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from codemods.api import Context, Edit, Fix, Import, Level, Reference, Rule, finding
from codemods.plan import PlannedContext
from codemods.tables.names import PACKAGE

CODE = "FM116"

_COUNTERPARTS = {"CPUOffload": "OffloadPolicy", "MixedPrecision": "MixedPrecisionPolicy", "ShardingStrategy": "dict"}
_IN_TYPES = (cst.Subscript, cst.SubscriptElement, cst.Index, cst.BinaryOperation)


def fix(node: Reference, ctx: PlannedContext) -> Fix | None:
    name = _COUNTERPARTS.get(ctx.fsdp1(node) or "")
    if name is None or (name == "MixedPrecisionPolicy" and not ctx.plan.reads_precision):
        return None  # where none is left in the program, the class goes wherever it is named
    holder = _annotated(node, ctx)
    values = _values(holder, ctx) if holder is not None else ()
    if not values or not all(_becomes_fsdp2(value, ctx) for value in values):
        return None
    message = f"annotation becomes {name}, as what it is about"
    findings = [finding(CODE, Level.REWRITTEN, ctx, node, message)]
    if name == "dict":
        return Fix([Edit(*ctx.bare_span(node), name)], findings)
    item = ctx.named(Import(PACKAGE, name), node)
    return Fix([Edit(*ctx.bare_span(node), item.local)], findings, [item])


def _annotated(node: cst.CSTNode, ctx: Context) -> cst.CSTNode | None:
    """What a type is said of: an annotated assignment, a function or a parameter."""
    for outer in ctx.ancestors(node):
        if isinstance(outer, cst.Annotation):
            return ctx.parent(outer)
        if not isinstance(outer, _IN_TYPES):
            return None
    return None


def _values(holder: cst.CSTNode, ctx: Context) -> Sequence[cst.BaseExpression]:
    if isinstance(holder, (cst.AnnAssign, cst.Assign)):
        return [holder.value] if holder.value is not None else ()
    if isinstance(holder, cst.Param):
        return [use for use in ctx.uses(holder) if isinstance(use, cst.Name)][:1]
    if isinstance(holder, cst.FunctionDef):
        returns = [node for node in ctx.inside(holder.body) if isinstance(node, cst.Return)]
        return [node.value for node in returns if node.value is not None]
    return ()


def _becomes_fsdp2(value: cst.BaseExpression, ctx: PlannedContext) -> bool:
    origins = [origin for origin in ctx.origins(value) if not origin.is_none]
    return bool(origins) and all(origin.node in ctx.plan.changed - ctx.plan.unchanged for origin in origins)


RULE: Rule[Reference] = Rule(CODE, "setting-annotation", __doc__, nodes=(cst.Name, cst.Attribute), fix=fix)
