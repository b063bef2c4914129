"""**What it does.** Takes `with enable_wrap(wrapper_cls=FSDP, ...)` away where every `wrap(module)` inside of it
becomes `fully_shard(module)`, be it entered by a `with` or put on an `ExitStack`; else both become the functions of the
same names in the support module, and `enable_wrap` is given a function that shards a module, where its arguments are
known.

**Why.** FSDP2 shards a module where it stands, so a call of `fully_shard` is all that `wrap` has to be. Where `wrap` is
called in the constructors of the model's classes, only run time knows whether a context is open: outside of it `wrap`
returns the module as it is, and one model class serves both.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import enable_wrap, wrap


def build(net):
    with enable_wrap(wrapper_cls=FSDP, use_orig_params=True):
        net.encoder = wrap(net.encoder)
        model = wrap(net)
    return model
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard


def build(net):
    fully_shard(net.encoder)
    model = fully_shard(net)
    return model
```

## Fix safety

The order of the calls is the order of the units, children first, as before. The arguments of `wrap` go before those
of `enable_wrap`, as they did.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import libcst as cst

from codemods.api import SUPPORT, Edit, Emission, Fix, Import, Level, Rule, left, rewritten
from codemods.plan import PlannedContext
from codemods.reading.edits.block_layout import leave_context, replace_head
from codemods.reading.edits.layout import removal
from codemods.reading.wraps.configuration import move
from codemods.reading.wraps.manual import block_of, class_given, opening_of

CODE = "FM106"


def fix(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    """Of `enable_wrap(wrapper_cls=FSDP)`, and each `wrap` that does not become `fully_shard` by itself."""
    if not ctx.plan.wraps:
        return None
    given = class_given(ctx, call)
    if given is None:
        goes = call in ctx.plan.wraps and ctx.plan.emission(call) is not Emission.SUPPORT
        if goes or ctx.fsdp1(call.func) != "wrap":
            return None
        moved = move(call.func, "wrap", ctx)
        message = "wrap becomes wrap of the support module, which shards inside of enable_wrap only"
        return rewritten(CODE, ctx, call, moved.edits, message, moved.imports)
    if ctx.plan.emission(call) is Emission.SKIP:
        message = "enable_wrap is left as it is, because a wrap inside of it is"
        return left(CODE, Level.MANUAL, ctx, call, message, "see the finding at that wrap")
    if ctx.plan.is_drafted(call):
        return None  # it is given a function instead (FM101)
    opened = opening_of(ctx, call)
    if ctx.plan.emission(call) is Emission.NATIVE and opened is not None:
        message = "enable_wrap goes: each module is sharded where wrap stands"
        return rewritten(CODE, ctx, call, _without(call, opened, ctx), message)
    moved = move(call.func, "enable_wrap", ctx)
    item = ctx.named(Import(SUPPORT, "shard_model"), call)
    message = "enable_wrap becomes enable_wrap of the support module, and wraps with shard_model"
    edits = [*moved.edits, Edit(*ctx.bare_span(given), item.local)]
    return rewritten(CODE, ctx, call, edits, message, [*moved.imports, item])


def _without(context: cst.Call, opened: cst.With | cst.SimpleStatementLine, ctx: PlannedContext) -> list[Edit]:
    """Edits that take it out of its `with`, or out of the stack that it is put on."""
    if isinstance(opened, cst.With):
        return leave_context(ctx, opened, next(item for item in opened.items if item.item is context))
    block = block_of(ctx, context)
    return [removal(ctx, opened), *(replace_head(ctx, block) if block is not None else [])]


RULE = Rule(CODE, "manual-wrapping", __doc__, nodes=(cst.Call,), fix=fix)
