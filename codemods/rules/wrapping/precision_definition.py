"""**What it does.** Turns a `MixedPrecision(...)` that is kept in a variable or a constant into
`MixedPrecisionPolicy(...)`.

**Why.** The dtypes have the same names and the same meaning of None. `buffer_dtype` has no counterpart: the
buffers are cast where the model is sharded. `cast_forward_inputs` is set there too, because FSDP1 casts inputs at
the root only.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision

BF16 = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def shard(model):
    return FSDP(model, mixed_precision=BF16)
```

## Use instead

```python
import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def shard(model):
    return fully_shard(model, mp_policy=BF16)
```

## Fix safety

Equal losses with bf16 parameters and float32 or bf16 reduction (torch 2.13, 2 ranks). A definition that a call of
the support module's `shard_model` can receive keeps FSDP1's form.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.MixedPrecisionPolicy
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context, Edit, Emission, Fix, Import, Level, NotStatic, Origin, Rule, finding
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import call_given
from codemods.reading.edits.call_layout import (
    append_argument,
    argument_removal,
    is_broken_for_width,
    quoted_argument,
    renaming,
)
from codemods.reading.own_fsdp2.shardings import shards_itself
from codemods.reading.wraps.precision import KEPT, POSITIONS, precision_fields
from codemods.tables.names import PACKAGE, WRAPPER

CODE = "FM103"

_CASTS = "cast_forward_inputs"


def fix(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    if ctx.fsdp1(call.func) != "MixedPrecision" or not _changes(call, ctx):
        return None
    try:
        fields = precision_fields(Origin(ctx, call))
    except NotStatic:
        return None
    policy = ctx.named(Import(PACKAGE, "MixedPrecisionPolicy"), call)
    level, message = Level.REWRITTEN, "MixedPrecision becomes MixedPrecisionPolicy"
    if _is_unread(call, ctx):
        message += ", which nothing reads"
    elif not _is_taken(call, ctx) and "buffer_dtype" in fields:
        level = Level.REVIEW
        message += "; no constructor call is seen to use it, so nothing casts the buffers to its buffer_dtype"
    return Fix(
        edits=_written(call, policy.local, ctx), findings=[finding(CODE, level, ctx, call, message)], imports=[policy]
    )


def _changes(call: cst.Call, ctx: PlannedContext) -> bool:
    if call in ctx.plan.unchanged or _is_constructor_argument(call, ctx):
        return False
    if ctx.plan.reads_precision and call not in ctx.plan.changed:
        # Which call it reaches is not seen: it keeps the form that run time reads.
        return False
    if not ctx.plan.wraps and shards_itself(ctx):
        return False  # the program reads it as it is
    return call in ctx.plan.changed or not any(_stays_fsdp1s(each, ctx) for each in _takers(call, ctx))


def _written(call: cst.Call, function: str, ctx: PlannedContext) -> list[Edit]:
    """Nothing but the two dtypes that FSDP2 has too, in the user's layout, or on one line that they now fit on.

    What differs from the others in whether units cast their inputs says that as well.
    """
    names = (*KEPT, _CASTS) if call in ctx.plan.units_cast else KEPT
    by_name = {a.keyword.value if a.keyword else POSITIONS[i]: a for i, a in enumerate(call.args)}
    kept = [argument for name, argument in by_name.items() if name in names]
    more = f"{_CASTS}=False" if _CASTS in names and _CASTS not in by_name else ""
    if is_broken_for_width(ctx, call) or (more and not kept):
        arguments = ", ".join(filter(None, [*(quoted_argument(ctx, argument) for argument in kept), more]))
        return [Edit(*ctx.span(call), f"{function}({arguments})")]
    gone = [argument for argument in call.args if argument not in kept]
    removed = [edit for argument in gone for edit in argument_removal(ctx, call, argument, gone)]
    added = [_added(call, kept[-1], more, ctx)] if more else []
    return [*renaming(ctx, call, function, gone), *added, *removed]


def _added(call: cst.Call, last: cst.Arg, more: str, ctx: Context) -> Edit:
    """One more argument behind the last that stays, before what goes behind that."""
    lines = ctx.code(call).split("\n")
    if lines[0].rstrip().endswith("(") and lines[-1].strip() == ")":
        return append_argument(ctx, call, more, last=last)
    end = ctx.span(last.value)[1]
    return Edit(end, end, f", {more}")


def _is_taken(node: cst.Call, ctx: PlannedContext) -> bool:
    """Whether a wrap site that becomes `fully_shard` is seen to use it, also out of a dict that it spreads."""
    spread = {value for wrap in ctx.plan.wraps.values() if wrap.draft is not None for value in wrap.draft.spread}
    return node in ctx.plan.changed or not spread.isdisjoint((node, *ctx.ancestors(node)))


def _is_unread(node: cst.BaseExpression, ctx: Context) -> bool:
    """What no file of the program reads, `MixedPrecision(…) if bf16 else None` and `policy = HALF` of a class too."""
    holder = ctx.parent(node)
    while isinstance(holder, cst.IfExp):
        holder = ctx.parent(holder)
    target = holder.targets[0].target if isinstance(holder, cst.Assign) and len(holder.targets) == 1 else None
    if not isinstance(holder, cst.Assign) or not isinstance(target, cst.Name):
        return False
    if isinstance(ctx.scope(holder), cst.ClassDef):
        return not ctx.uses(holder) and not _is_read_as_attribute(target.value, ctx)
    kept = [use for use in ctx.uses(holder) if isinstance(ctx.scope(use), cst.ClassDef)]
    is_kept_alone = len(kept) == len(ctx.uses(holder)) and all(_is_unread(use, ctx) for use in kept)
    return is_kept_alone and not ctx.is_read_elsewhere(target.value)


def _is_read_as_attribute(name: str, ctx: Context) -> bool:
    """Whether a file has an attribute of this name, or the name as a text."""
    return bool(ctx.attributes(name)) or any(
        text.raw_value == name for where in ctx.files(name) for text in where.nodes(cst.SimpleString)
    )


def _takers(node: cst.BaseExpression, ctx: Context) -> Iterator[cst.Call]:
    """The calls of its file that are given it, by a variable too."""
    holder = ctx.parent(node)
    if isinstance(holder, cst.IfExp):
        yield from _takers(holder, ctx)
    elif isinstance(holder, cst.Assign):
        for use in ctx.uses(holder):
            yield from _takers(use, ctx)
    elif (call := call_given(node, ctx)) is not None:
        yield call


def _stays_fsdp1s(call: cst.Call, ctx: PlannedContext) -> bool:
    """Whether it is a constructor call that is left as it is, or of a library that wraps:
    `FullyShardedDataParallelPlugin(mixed_precision_policy=…)`."""
    if call in ctx.plan.wraps:
        return ctx.plan.emission(call) is Emission.SKIP
    name = ctx.dotted(call.func) if not ctx.runs(call) else None
    return name is not None and not name.startswith("torch.")


def _is_constructor_argument(node: cst.Call, ctx: Context) -> bool:
    """Written inside `FSDP(...)`: the constructor's own rule takes it."""
    call = call_given(node, ctx)
    return call is not None and ctx.fsdp1(call.func) == WRAPPER


RULE = Rule(CODE, "mixed-precision-definition", __doc__, nodes=(cst.Call,), fix=fix)
