"""**What it does.** Rewrites `isinstance(x, FullyShardedDataParallel)` and annotations with the class into
`FSDPModule`.

**Why.** `fully_shard` gives each sharded module's class the mix-in `FSDPModule`; a sharded module is never an
instance of `FullyShardedDataParallel`, so the old test would be False without a word.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def units(net):
    model = FSDP(net)
    return [module for module in model.modules() if isinstance(module, FSDP)]
```

## Use instead

```python
from torch.distributed.fsdp import FSDPModule, fully_shard


def units(net):
    model = fully_shard(net)
    return [module for module in model.modules() if isinstance(module, FSDPModule)]
```

## Fix safety

The same modules answer True. `isinstance(x, Block)` is now True for a sharded block as well, since it is no longer
hidden in a wrapper.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.FSDPModule
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Edit, Fix, Import, Level, Reference, Rule, finding
from codemods.plan import PlannedContext
from codemods.tables.names import PACKAGE, WRAPPER

CODE = "FM105"


def match(node: cst.CSTNode, ctx: PlannedContext) -> Reference | None:
    if not isinstance(node, (cst.Name, cst.Attribute)) or _counterpart(node, ctx) is None:
        return None
    return node if _is_class_test(node, ctx) or _is_annotation(node, ctx) else None


def edit(found: Reference, ctx: PlannedContext) -> Fix:
    others = _other_wrappers(found, ctx)
    if others is not None:
        message = "an FSDP2 model has no wrapper to look inside: only the other classes have one"
        return Fix([others], [finding(CODE, Level.REWRITTEN, ctx, found, message)])
    item = ctx.named(Import(PACKAGE, _counterpart(found, ctx) or ""), found)
    return Fix(
        edits=[Edit(*ctx.span(found), item.local)],
        findings=[finding(CODE, Level.REWRITTEN, ctx, found, f"class check becomes {item.name}")],
        imports=[item],
    )


def _other_wrappers(node: Reference, ctx: Context) -> Edit | None:
    """For `while isinstance(m, (DDP, FSDP)): m = m.module`: the tuple without FSDP."""
    element = ctx.parent(node)
    classes = ctx.parent(element) if isinstance(element, cst.Element) else None
    argument = ctx.parent(classes) if isinstance(classes, cst.Tuple) else None
    call = ctx.parent(argument) if isinstance(argument, cst.Arg) else None
    statement = ctx.parent(call) if isinstance(call, cst.Call) else None
    if not isinstance(classes, cst.Tuple) or not isinstance(call, cst.Call):
        return None
    if not isinstance(statement, (cst.While, cst.If)) or statement.test is not call:
        return None
    if f"{ctx.code(call.args[0].value)}.module" not in ctx.code(statement.body):
        return None
    kept = [ctx.quote(other.value) for other in classes.elements if other is not element]
    return Edit(*ctx.span(classes), kept[0] if len(kept) == 1 else f"({', '.join(kept)})")


def _counterpart(node: Reference, ctx: PlannedContext) -> str | None:
    """FSDP2's class for one of FSDP1's; `MixedPrecision` keeps its own where the support module needs it."""
    name = ctx.fsdp1(node)
    if name == "MixedPrecision" and not ctx.plan.uses_shard_model:
        return "MixedPrecisionPolicy"
    return "FSDPModule" if name == WRAPPER else None


def _is_class_test(node: cst.BaseExpression, ctx: Context) -> bool:
    """The second argument of `isinstance` or `issubclass`, alone or in a tuple."""
    holder = ctx.parent(node)
    if isinstance(holder, cst.MatchClass):
        return True
    while isinstance(holder, (cst.Element, cst.Tuple, cst.BinaryOperation)):
        holder = ctx.parent(holder)
    if isinstance(holder, cst.Assign):
        # `KINDS = (FSDP, DDP)`, for a test further down.
        return holder.value is not node
    call = ctx.parent(holder) if isinstance(holder, cst.Arg) else None
    return isinstance(call, cst.Call) and ctx.code(call.func) in {"isinstance", "issubclass"}


def _is_annotation(node: cst.BaseExpression, ctx: Context) -> bool:
    for ancestor in ctx.ancestors(node):
        if isinstance(ancestor, cst.Annotation):
            return True
        if not isinstance(ancestor, (cst.Subscript, cst.SubscriptElement, cst.Index, cst.BinaryOperation, cst.Tuple)):
            return False
    return False


RULE: Rule[Reference] = Rule(
    CODE, "fsdp-class-check", __doc__, nodes=(cst.Name, cst.Attribute), methods=(), match=match, edit=edit
)
