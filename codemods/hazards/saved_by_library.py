"""**What it does.** Finds `model.save_pretrained(...)` and `model.push_to_hub(...)` of a sharded model that are given
no state dict.

**Why.** They read `state_dict()` of the model themselves. On an FSDP2 model that is this rank's part of it, as
DTensors; FSDP1 gathered, at least where a context or a setting asked for whole tensors.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(net, path):
    model = FSDP(net)
    model.save_pretrained(path)
```

## Use instead

```python
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


def save(net, path):
    model = fully_shard(net)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model.save_pretrained(path, state_dict=get_model_state_dict(model, options=options))
```

## Fix safety

Nothing is changed. Every rank has to read the state dict, and one of them to save it; not every library's
`save_pretrained` takes one. Inside of `FSDP.state_dict_type` with FULL_STATE_DICT the model is gathered as before.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, NotStatic, finding
from codemods.plan import PlannedContext
from codemods.reading.model_parameters import is_summoned
from codemods.reading.state_dict_settings import context_of, settings
from codemods.tables.names import WRAPPER

CODE = "FM314"

_SAVES = ("save_pretrained", "push_to_hub")


def find(ctx: PlannedContext) -> Iterator[Finding]:
    """One finding for each call."""
    for call in ctx.nodes(cst.Call) if ctx.plan.migrates else ():
        if _saves_model(call, ctx) and not is_summoned(call, ctx) and not _is_gathered(call, ctx):
            name = ctx.code(call.func)
            message = f"`{name}` reads the state dict of a sharded model itself: each rank's part of it"
            hint = "give it state_dict=get_model_state_dict(...) with full_state_dict=True, read on every rank"
            yield finding(CODE, Level.MANUAL, ctx, call, message, hint)


def _saves_model(call: cst.Call, ctx: Context) -> bool:
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in _SAVES or ctx.runs(call):
        return False
    if any(argument.keyword is not None and argument.keyword.value == "state_dict" for argument in call.args):
        return False
    owner = call.func.value
    if isinstance(owner, cst.Attribute) and owner.attr.value == "module":
        owner = owner.value
    held = ctx.kinds(owner)
    return ModelKind.FSDP in held and (held == {ModelKind.FSDP} or not _has_no_wrapped_part(owner, call, ctx))


def _has_no_wrapped_part(owner: cst.BaseExpression, call: cst.Call, ctx: Context) -> bool:
    """Whether this is the other way of `if isinstance(owner.base, FSDP):`, where the program saves a plain model."""
    inner: cst.CSTNode = call
    for outer in ctx.ancestors(call):
        if isinstance(outer, cst.If) and inner is outer.orelse and isinstance(outer.test, cst.Call):
            asked = [argument.value for argument in outer.test.args]
            is_test = ctx.code(outer.test.func) == "isinstance" and len(asked) == 2 and ctx.fsdp1(asked[1]) == WRAPPER
            if is_test and ctx.code(asked[0]).startswith(f"{ctx.code(owner)}."):
                return True
        inner = outer
    return False


def _is_gathered(call: cst.Call, ctx: Context) -> bool:
    context = context_of(call, ctx)
    try:
        return context is not None and settings(context, ctx).is_full
    except NotStatic:
        return False


CHECK = Check(CODE, "saved-by-a-library", __doc__, words=_SAVES, find=find)
