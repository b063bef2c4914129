"""**What it does.** Finds hooks on the parameters of a model that is wrapped: `register_hook`,
`register_post_accumulate_grad_hook`, and torch's `_apply_optimizer_in_backward`, which is made of them.

**Why.** With use_orig_params=True FSDP1 ran none of them, and with flat parameters each once a unit. FSDP2 runs
`register_post_accumulate_grad_hook` once for each parameter, and `register_hook` never (measured on torch 2.13). Hooks
from before the wrap run under neither. Optimizers of `_apply_optimizer_in_backward` FSDP1 ran behind its
reduce-scatter with use_orig_params=True; FSDP2 does not know them, and nothing is trained.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net, clamp):
    model = FSDP(net, use_orig_params=True)
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(clamp)
    return model
```

## Use instead

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net, optimizer, clamp):
    model = FSDP(net, use_orig_params=True)
    optimizer.register_step_pre_hook(clamp)
    return model
```

## Fix safety

Nothing is changed. Where the hook ran under neither, taking it away changes nothing; where it runs now and did not
before, the run trains otherwise.

## References

- https://docs.pytorch.org/docs/stable/generated/torch.Tensor.register_post_accumulate_grad_hook.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import call_by, enclosing, is_self
from codemods.reading.code.places import base, same
from codemods.reading.code.shapes import called_on, front
from codemods.reading.code.words import last_name
from codemods.reading.models.parts import wrapped_around
from codemods.reading.parameters.of_model import READERS, readings
from codemods.reading.wraps.manual import is_constructor
from codemods.reading.wraps.wrapped import calls_above, wrapped_place

CODE = "FM424"

_SINGLE = "register_hook"
_ACCUMULATED = "register_post_accumulate_grad_hook"
_MAY_BE = frozenset({ModelKind.FSDP, ModelKind.UNKNOWN})
_IN_BACKWARD = "_apply_optimizer_in_backward"
_HINT_IN_BACKWARD = (
    "make an optimizer of each parameter, and step it in param.register_post_accumulate_grad_hook, which FSDP2 runs "
    "behind its reduce-scatter; or step one optimizer behind backward"
)
_HINT = "do it in the training loop, between backward and step, or with optimizer.register_step_pre_hook"


def find(ctx: PlannedContext) -> Iterator[Finding]:
    """One finding for each loop, or named parameter."""
    sharded = set()
    for reading in readings(ctx):
        hook = next((hook for param in reading.seen(ctx) if (hook := _hook(param, ctx))), None)
        if hook is None:
            continue
        sharded.add(reading.node)
        message = "FSDP1 ran hooks of flat parameters, and FSDP2 runs register_hook of none"
        if hook == _ACCUMULATED:
            message = (
                "FSDP2 runs a hook for each parameter, where FSDP1 ran one a unit, or none with use_orig_params=True"
            )
        yield finding(CODE, Level.MANUAL, ctx, reading.node, message, _HINT)
    for call in ctx.nodes(cst.Call):
        if last_name(call.func) == _IN_BACKWARD and _may_be_of_model(call, ctx):
            message = "FSDP1 ran these optimizers within backward, and FSDP2 does not: nothing would be trained"
            yield finding(CODE, Level.MANUAL, ctx, call, message, _HINT_IN_BACKWARD)
    for node in _before(ctx):
        if node not in sharded:
            message = "hooks on parameters from before the wrap run neither under FSDP1 nor under FSDP2"
            yield finding(CODE, Level.REVIEW, ctx, node, message, _HINT)


def _may_be_of_model(call: cst.Call, ctx: Context) -> bool:
    """Whether the parameters that a call is given can be those of a wrapped model, or of a part of one."""
    module = next((called_on(a.value, *READERS) for a in call.args if called_on(a.value, *READERS) is not None), None)
    if module is None:
        return True
    held = ctx.kinds(module)
    is_unseen = ModelKind.UNKNOWN in held and not _is_of_plain(module, ctx)
    return ModelKind.FSDP in held or is_unseen or wrapped_around(module, ctx) is not None


def _is_of_plain(part: cst.BaseExpression, ctx: Context) -> bool:
    """`model.sparse_arch` of a model that is seen to be wrapped by nothing."""
    whole = front(part)
    return whole is not part and not is_self(whole, ctx) and ctx.kinds(whole).isdisjoint(_MAY_BE)


def _before(ctx: PlannedContext) -> Iterator[cst.Call]:
    """`for p in net.parameters(): p.register_hook(...)`, above the call that wraps `net`."""
    found: dict[cst.Call, None] = {}
    for call in ctx.nodes(cst.Call):
        if not is_constructor(ctx, call) and not ctx.plan.is_drafted(call):
            continue
        model = wrapped_place(ctx, call)
        for other in calls_above(ctx, call, model) if model is not None else ():
            read = called_on(other, *READERS)
            owner = base(read) if read is not None else None
            if owner is not None and model is not None and same(owner, model) and _loop_hooks(ctx, other):
                found[other] = None
    yield from found


def _loop_hooks(ctx: Context, parameters: cst.Call) -> bool:
    loop = enclosing(ctx, parameters, cst.For)
    inside = ctx.inside(loop.body) if loop is not None else ()
    return any(isinstance(node, cst.Attribute) and node.attr.value in {_SINGLE, _ACCUMULATED} for node in inside)


def _hook(param: cst.BaseExpression, ctx: Context) -> str | None:
    """The method of `p.register_hook(...)`."""
    method = ctx.parent(param)
    if not isinstance(method, cst.Attribute) or method.attr.value not in {_SINGLE, _ACCUMULATED}:
        return None
    return method.attr.value if call_by(method, ctx) is not None else None


CHECK = Check(CODE, "hook-on-parameter", __doc__, words=(_SINGLE, _ACCUMULATED, _IN_BACKWARD), find=find)
