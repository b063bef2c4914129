"""**What it does.** Rewrites methods of FSDP1's wrapper that are looked up by their name: `hasattr(model, "no_sync")`,
`getattr(model, "clip_grad_norm_")`.

**Why.** An FSDP2 model has none of these methods: the program would take the way of a model that is not sharded,
without a word.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def step(net, loss):
    model = FSDP(net)
    loss.backward()
    if hasattr(model, "clip_grad_norm_"):
        model.clip_grad_norm_(1.0)
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FSDPModule, fully_shard


def step(net, loss):
    model = fully_shard(net)
    loss.backward()
    if isinstance(model, FSDPModule):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
```

## Fix safety

The same way is taken. `getattr` becomes the support module's function for this model. Where `no_sync` is looked up on
what may be another model too, by `hasattr` too, or with a default other than None, the model is asked for its class
first, and any other answers as before. `_streams` of a model that may lack it (`getattr(model, "_streams", None)`) only
orders its work: that stays. Where another method is looked up on such a model, or what is looked up has no counterpart
(the wrapper's state-dict methods, handles and flat parameters), the place is reported, and raises.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.FSDPModule
"""

from __future__ import annotations

from collections.abc import Set

import libcst as cst

from codemods.api import (
    FSDP_MODULE,
    SUPPORT,
    Context,
    Edit,
    Fix,
    Import,
    Level,
    ModelKind,
    Raise,
    Rule,
    left,
    replaced,
    rewritten,
)
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import is_entered_without_gradients, is_without_gradients
from codemods.reading.code.program import may_be_models_own
from codemods.reading.code.words import is_name, last_name, words
from codemods.reading.edits.call_layout import either
from codemods.reading.gradients.clipping import any_clipper, is_clipped_otherwise, may_be_anothers
from codemods.reading.units.handles import HANDLES, is_reshard
from codemods.reading.wraps.process_groups import group_of
from codemods.tables.leftovers import ALSO_OF_MODELS, BY_NAME, INTERNALS, OF_WRAPPER, SPEED_ONLY, STATIC

CODE = "FM205"

_MESSAGE = "a method of FSDP1 is looked up by its name, and an FSDP2 model does not have it"
_HINT = "ask isinstance(model, FSDPModule) instead, and call what replaces the method"
_SPEED = "FSDP2 does not have what is asked for, which only sets how far FSDP1 gathers ahead"
_STREAMS = "FSDP2's models have streams of their own, and share none: the program takes the way of a model without"
_INNER = "_fsdp_wrapped_module"
_FUNCTIONS = frozenset({"clip_grad_norm_", "no_sync"})
# Taking the wrapper off is right on FSDP2: there is none to take off.
_LOOKED_UP = (BY_NAME | STATIC | INTERNALS | OF_WRAPPER | {"register_comm_hook"}) - {_INNER}


def fix(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    """Of `getattr(model, "no_sync", ...)` or `hasattr(model, "no_sync")`."""
    if not isinstance(call.func, cst.Name) or call.func.value not in {"getattr", "hasattr"} or len(call.args) < 2:
        return None
    model, literal = call.args[0].value, call.args[1].value
    name = str(literal.evaluated_value) if isinstance(literal, cst.SimpleString) else ""
    if name == _INNER:
        return _without_test(call, ctx) if _is_first_of_two(call, ctx) else None
    if name not in _LOOKED_UP and (name not in ALSO_OF_MODELS or may_be_models_own(ctx, model, name)):
        return None
    if name == "no_sync" and (is_without_gradients(call, ctx) or is_entered_without_gradients(call, ctx)):
        return None  # nothing is accumulated: whatever it finds is right
    held = ctx.kinds(model)
    if (ModelKind.FSDP not in held or may_be_anothers(held, ctx)) and is_clipped_otherwise(call, ctx):
        return None
    if not held & ({ModelKind.FSDP, ModelKind.UNKNOWN} if name in BY_NAME else {ModelKind.FSDP}):
        return None
    if name in HANDLES and any(is_reshard(other.func, ctx) for other in ctx.calls(ctx.scope(call))):
        return None  # they are for that call, which is told of
    is_test = call.func.value == "hasattr"
    if name == "no_sync" and not is_test and (ModelKind.FSDP in held or _may_be_model(model, ctx)):
        return _function(call, name, held, ctx)
    if name == "no_sync" and is_test and _may_be_model(model, ctx):
        return _class_test(call, name, held, ctx)
    if ModelKind.FSDP not in held:
        return left(CODE, Level.MANUAL, ctx, call, _MESSAGE, _HINT)
    if name in BY_NAME and is_test:
        return _class_test(call, name, held, ctx)
    if name in _FUNCTIONS and held <= {ModelKind.FSDP, ModelKind.DDP}:
        return _function(call, name, held, ctx)
    if name == "process_group" and not is_test and held == {ModelKind.FSDP}:
        text, imports = group_of(ctx, model, call)
        return replaced(CODE, ctx, call, text, "process_group becomes that of the model's mesh", imports)
    if name in SPEED_ONLY and is_test:
        return left(CODE, Level.REVIEW, ctx, call, _SPEED)
    if name == "_streams" and (is_test or (len(call.args) == 3 and is_name(call.args[2].value, "None"))):
        return left(CODE, Level.REVIEW, ctx, call, _STREAMS)
    stopped = [Raise(call, CODE, _MESSAGE, model)]
    return left(CODE, Level.MANUAL, ctx, call, _MESSAGE, _HINT, stopped)


def _is_first_of_two(call: cst.Call, ctx: PlannedContext) -> bool:
    """`hasattr(block, "_fsdp_wrapped_module") and ...` of the inner module: there is no wrapper, the module is it."""
    both = ctx.parent(call)
    if not isinstance(both, cst.BooleanOperation) or both.left is not call or not ctx.plan.migrates:
        return False
    inner = f"{ctx.code(call.args[0].value)}.{_INNER}"
    asks = isinstance(both.operator, cst.And) and ctx.code(call.func) == "hasattr"
    return asks and any(isinstance(n, cst.Attribute) and ctx.code(n) == inner for n in ctx.inside(both.right))


def _repeated(both: cst.BooleanOperation, ctx: Context) -> Edit | None:
    """The second half of `A or (hasattr(m, …) and A)`, where A of the inner module is A of the module."""
    either = ctx.parent(both)
    if not isinstance(either, cst.BooleanOperation) or not isinstance(either.operator, cst.Or):
        return None
    start, end = ctx.bare_span(both.right)
    pieces, position = [], start
    for node in ctx.inside(both.right):
        if isinstance(node, cst.Attribute) and node.attr.value == _INNER:
            pieces.append(ctx.text[position : ctx.span(node.value)[1]])
            position = ctx.span(node)[1]
    if either.right is not both or ctx.code(either.left) != "".join([*pieces, ctx.text[position:end]]):
        return None
    return Edit(ctx.span(either.left)[1], ctx.span(both)[1], "")


def _without_test(call: cst.Call, ctx: Context) -> Fix:
    both = cst.ensure_type(ctx.parent(call), cst.BooleanOperation)
    gone = _repeated(both, ctx) or Edit(ctx.span(both.left)[0], ctx.span(both.right)[0], "")
    return rewritten(CODE, ctx, call, [gone], "there is no wrapper to ask for")


def _may_be_model(model: cst.BaseExpression, ctx: PlannedContext) -> bool:
    return ctx.plan.migrates and bool(words(last_name(model)) & {"model", "module", "net", "network"})


def _class_test(call: cst.Call, name: str, held: Set[ModelKind], ctx: Context) -> Fix:
    item = ctx.named(FSDP_MODULE, call)
    text = f"isinstance({ctx.quote(call.args[0].value)}, {item.local})"
    if name == "no_sync" and not held <= {ModelKind.FSDP, ModelKind.OTHER}:
        text = f"{text} or {ctx.quote(call)}"  # a DDP model has this method too
        text = text if isinstance(ctx.parent(call), (cst.If, cst.Return)) else f"({text})"
    return replaced(CODE, ctx, call, text, f"hasattr of `{name}` becomes a class test", [item])


def _function(call: cst.Call, name: str, held: Set[ModelKind], ctx: PlannedContext) -> Fix:
    model, clips, is_asked = call.args[0].value, name == "clip_grad_norm_", _has_another_way(call, held)
    context = "unsynced" if is_asked or held == {ModelKind.FSDP} else "no_sync"
    item = ctx.named(Import(SUPPORT, any_clipper(model, ctx, ctx.plan) if clips else context), call)
    partial = ctx.named(Import("functools", "partial"), call)
    given = f"list({ctx.quote(model)}.parameters())" if clips else ctx.quote(model)
    text, imports = f"{partial.local}({item.local}, {given})", [item, partial]
    if is_asked:
        sharded = ctx.named(FSDP_MODULE, call)
        test = f"isinstance({ctx.quote(model)}, {sharded.local})"
        text = either(ctx, call, test, text, ctx.quote(call))
        imports.append(sharded)
    return replaced(CODE, ctx, call, text, f"{name} becomes {item.name}, a support function", imports)


def _has_another_way(call: cst.Call, held: Set[ModelKind]) -> bool:
    """Whether other models come here, or the program says what one gets that has no such method: it runs on one
    process too.
    """
    if not held <= {ModelKind.FSDP, ModelKind.DDP}:
        return True
    default = call.args[2].value if len(call.args) == 3 else None
    return default is not None and not (isinstance(default, cst.Name) and default.value == "None")


RULE = Rule(CODE, "method-by-name", __doc__, nodes=(cst.Call,), fix=fix)
