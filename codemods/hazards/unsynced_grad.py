"""**What it does.** Finds code inside of `no_sync`, or a clipping behind it in every turn, that looks at gradients.

**Why.** Under FSDP1 `p.grad` is the whole, unsynchronised gradient there. FSDP2 keeps it out of sight: `p.grad` is None
until a synchronised backward (torch 2.13), so a clipping, a log or a test for None does something else. A clipping in
every turn of an accumulation clipped each partial sum under FSDP1, and clips the whole sum once now: other losses.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def step(net, batch):
    model = FSDP(net)
    with model.no_sync():
        model(batch).sum().backward()
        return [p.grad is None for p in model.parameters()]
```

## Use instead

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def step(net, batch):
    model = FSDP(net)
    with model.no_sync():
        model(batch).sum().backward()
    model(batch).sum().backward()
    return [p.grad is None for p in model.parameters()]
```

## Fix safety

Nothing is changed.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding
from codemods.reading.code.enclosing import upward
from codemods.reading.code.shapes import is_attribute, is_call_to
from codemods.reading.code.words import last_name

CODE = "FM423"

_CLIPPINGS = frozenset({"clip_grad_norm_", "clip_grad_norm", "clip_grad_value_"})


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each block of `no_sync`."""
    blocks: dict[cst.With, cst.Attribute] = {}
    for attribute in ctx.nodes(cst.Attribute):
        if attribute.attr.value != "grad" or ctx.dotted(attribute) is not None:
            continue
        for block in ctx.ancestors(attribute):
            if isinstance(block, cst.With) and _accumulates(block, ctx):
                blocks.setdefault(block, attribute)
    for clipping in _clippings_in_every_turn(ctx):
        message = "gradients are clipped in turns that do not synchronise, where FSDP2 has none yet: the losses differ"
        hint = "clip only before optimizer.step(), which is what is meant, and expect other losses than before"
        yield finding(CODE, Level.MANUAL, ctx, clipping, message, hint)
    for attribute in blocks.values():
        message = "gradients are looked at inside of no_sync, where FSDP2 has none to show"
        hint = "look at them behind the synchronised backward"
        yield finding(CODE, Level.MANUAL, ctx, attribute, message, hint)


def _accumulates(block: cst.With, ctx: Context) -> bool:
    """Whether a block is entered by `no_sync` of a wrapped model."""
    for item in block.items:
        for node in ctx.inside(item.item):
            if is_attribute(node, "no_sync") and ModelKind.FSDP in ctx.kinds(node.value):
                return True
    return False


def _clippings_in_every_turn(ctx: Context) -> Iterator[cst.Call]:
    """The clippings behind a block of `no_sync`, or in it, that no condition keeps to the synchronised turns."""
    for call in ctx.nodes(cst.Call):
        if not isinstance(call.func, (cst.Attribute, cst.Name)) or last_name(call.func) not in _CLIPPINGS:
            continue
        if not any(ModelKind.FSDP in where.kinds(model) for where, model in _models(call, ctx)):
            continue
        blocks = (block for block in _blocks_before(call, ctx) if not _is_synchronised_between(block, call, ctx))
        if any(_may_not_sync(block, ctx) for block in blocks):
            yield call


def _models(call: cst.Call, ctx: Context) -> Iterator[tuple[Context, cst.BaseExpression]]:
    """`model` of `model.clip_grad_norm_(1.0)` and `clip_grad_norm_(model.parameters(), 1.0)`."""
    if isinstance(call.func, cst.Attribute):
        yield ctx, call.func.value
    for origin in ctx.origins(call.args[0].value) if call.args else ():
        if isinstance(origin.node, cst.Call) and isinstance(origin.node.func, cst.Attribute):
            yield origin.file, origin.node.func.value


def _blocks_before(call: cst.Call, ctx: Context) -> Iterator[cst.With]:
    """The `with` blocks around a call, and those above it in the same turn, unless a condition lies between."""
    for inner, outer in upward(ctx, call):
        if isinstance(outer, cst.If) and _is_of_the_turn(outer.test, ctx):
            return
        if isinstance(outer, cst.IndentedBlock):
            blocks = [statement for statement in outer.body if isinstance(statement, cst.With)]
            yield from (block for block in blocks if ctx.span(block)[1] <= ctx.span(inner)[0])
        if isinstance(outer, cst.With):
            yield outer
        if isinstance(outer, (cst.For, cst.While, cst.FunctionDef, cst.ClassDef)):
            return


def _is_synchronised_between(block: cst.With, call: cst.Call, ctx: Context) -> bool:
    """Whether a backward stands behind a block, or other turns leave there: `if not last: continue`."""
    start, end = ctx.span(block)[1], ctx.span(call)[0]
    if any(start <= ctx.span(node)[0] < end for node in ctx.nodes(cst.Continue)):
        return True
    between = (other for other in ctx.calls(ctx.scope(call)) if start <= ctx.span(other)[0] < end)
    return any(is_attribute(other.func, "backward") for other in between)


def _is_of_the_turn(test: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a condition differs from turn to turn: it is none of settings alone, as `args.clip > 0` is."""
    names = [node for node in ctx.inside(test) if isinstance(node, (cst.Name, cst.Attribute))]
    outermost = [node for node in names if not isinstance(ctx.parent(node), cst.Attribute)]
    return not all(
        isinstance(node, cst.Attribute) or node.value.isupper() or "clip" in node.value for node in outermost
    )


def _may_not_sync(block: cst.With, ctx: Context) -> bool:
    """Whether a block is entered by a `no_sync`: directly, as one of several, or by a function's own `with`."""
    for item in block.items:
        places = [(ctx, item.item), *((o.file, o.node) for o in ctx.origins(item.item) if o.node is not None)]
        places += [(where, function) for call in _calls(item.item) for where, function in ctx.runs(call)]
        for where, node in places:
            if any(_names_no_sync(inner) for inner in where.inside(node)):
                return True
    return False


def _names_no_sync(node: cst.CSTNode) -> bool:
    """`model.no_sync`, `getattr(model, "no_sync", nullcontext)`."""
    if is_call_to(node, "getattr"):
        name = node.args[1].value if len(node.args) > 1 else None
        return isinstance(name, cst.SimpleString) and name.evaluated_value == "no_sync"
    return is_attribute(node, "no_sync")


def _calls(node: cst.BaseExpression) -> list[cst.Call]:
    return [node] if isinstance(node, cst.Call) else []


CHECK = Check(CODE, "gradient-inside-no-sync", __doc__, words=("grad", *sorted(_CLIPPINGS)), find=find)
