"""**What it does.** Finds the method `state_dict` of a sharded model where it is taken to be called later, or by its
name: `get = model.state_dict`, `getattr(model, "state_dict")`, `operator.methodcaller("state_dict")(model)`. And the
class of a sharded model, where that has a `state_dict` of its own, or part of it one that renames keys while they are
loaded: in `_load_from_state_dict`, or in a hook.

**Why.** Whoever calls it gets this rank's DTensors, without a word, where FSDP1 gathered the whole state dict: a file
saved from it holds one rank's shards (torch 2.13, 2 ranks). What a `state_dict` of the model's class returns was not
used by FSDP1, whose names had another beginning there, too: a file can lack now what that leaves out. What is loaded is
sharded by the names that the model has: under an old one a tensor stays whole, and copying it into a shard raises.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(net, path):
    model = FSDP(net)
    get_state = model.state_dict
    torch.save(get_state(), path)
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(net, path):
    model = FSDP(net)
    torch.save(model.state_dict(), path)
```

## Fix safety

Nothing is changed: a context of the caller may say what the state dict is. It raises when it is reached, so that no
checkpoint is lost.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, Raise, finding
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import call_by, enclosing
from codemods.reading.code.shapes import called_on
from codemods.reading.models.class_layout import model_classes
from codemods.reading.models.makeup import makeup
from codemods.reading.state_dicts.own_keys import stores

CODE = "FM428"

_METHOD = "state_dict"
_MESSAGE = "state_dict of a sharded model is taken here to be called later: on FSDP2 it gives this rank's DTensors"
_OWN = (
    "FSDP1 did not use what this state_dict returns, and `_fsdp_wrapped_module.` stood in the names that it saw: what"
    " it leaves out or renames is so now"
)
_HINT_OF_OWN = "compare the keys of a new checkpoint with those of an old one"
_LOAD = "_load_from_state_dict"
_LOAD_HOOKS = ("register_load_state_dict_pre_hook", "_register_load_state_dict_pre_hook")
_RENAMES = (
    "what gets its name here, while it is loaded, is not sharded: where an old checkpoint comes to it, copying the"
    " whole tensor raises"
)
_HINT_OF_RENAMES = "rename the keys before they are loaded, or save such a file anew with the model as it was"
_HINT = "take a function that calls get_model_state_dict of torch.distributed.checkpoint.state_dict instead"


def find(ctx: PlannedContext) -> Iterator[Finding]:
    """One finding for each place."""
    for node, _ in _taken(ctx):
        yield finding(CODE, Level.MANUAL, ctx, node, _MESSAGE, _HINT)
    for method in ctx.nodes(cst.FunctionDef):
        owner = enclosing(ctx, method, cst.ClassDef) if method.name.value == _METHOD else None
        if owner is not None and _is_wrapped(owner, ctx):
            yield finding(CODE, Level.REVIEW, ctx, method, _OWN, _HINT_OF_OWN)
    for method in _renaming(ctx):
        yield finding(CODE, Level.REVIEW, ctx, method, _RENAMES, _HINT_OF_RENAMES)


def _renaming(ctx: PlannedContext) -> Iterator[cst.FunctionDef]:
    """What puts other names into a state dict that is loaded, in a class that a wrapped model is made of."""
    hooks = (call.args[0].value for call in ctx.nodes(cst.Call) if called_on(call, *_LOAD_HOOKS) and call.args)
    given = [origin.node for hook in hooks for origin in ctx.origins(hook)]
    for method in ctx.nodes(cst.FunctionDef):
        owner = ctx.scope(method)
        is_one = method.name.value == _LOAD or any(method is each for each in given)
        if not is_one or not isinstance(owner, cst.ClassDef) or not stores(method, ctx):
            continue
        if any(each is owner for at, call in ctx.wrapping.calls(ctx.path) for _, each in makeup(at, call).classes):
            yield method


def _is_wrapped(owner: cst.ClassDef, ctx: PlannedContext) -> bool:
    """Whether a constructor call of the program wraps an object of a class, or of one that comes from it."""
    calls = ctx.wrapping.calls(ctx.path)
    return any(each is owner for where, call in calls for _, each in model_classes(where, call))


def stops(ctx: PlannedContext) -> Iterator[tuple[Context, Raise]]:
    """What is taken from an FSDP2 model, not from another."""
    for node, model in _taken(ctx):
        yield ctx, Raise(node, CODE, _MESSAGE, model)


def _taken(ctx: PlannedContext) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
    """The places, and the model of each."""
    if not ctx.plan.migrates:
        return
    for node in ctx.nodes(cst.Attribute):
        is_other = call_by(node, ctx) or isinstance(ctx.parent(node), (cst.AssignTarget, cst.Attribute))
        if node.attr.value != _METHOD or is_other or _only_asks(node, ctx):
            continue
        if _is_sharded(node.value, ctx):
            yield node, node.value
    for call in ctx.nodes(cst.Call):
        model = _looked_up(call, ctx)
        if model is not None and not _only_asks(call, ctx) and _is_sharded(model, ctx):
            yield call, model


def _only_asks(taken: cst.BaseExpression, ctx: Context) -> bool:
    """`callable(getattr(model, "state_dict", None))`, `... is not None`, `if ...:`: whether there is such a method."""
    around = ctx.parent(taken)
    if isinstance(around, cst.Arg):
        asked = ctx.parent(around)
        return isinstance(asked, cst.Call) and ctx.code(asked.func) in {"bool", "callable", "hasattr", "isinstance"}
    if isinstance(around, (cst.If, cst.While, cst.Assert, cst.IfExp)):
        return around.test is taken
    return isinstance(around, (cst.Comparison, cst.ComparisonTarget, cst.UnaryOperation))


def _is_sharded(model: cst.BaseExpression, ctx: Context) -> bool:
    return ModelKind.FSDP in ctx.kinds(model)


def _looked_up(call: cst.Call, ctx: Context) -> cst.BaseExpression | None:
    """The model of `getattr(model, "state_dict")` and of `methodcaller("state_dict")(model)`."""
    if isinstance(call.func, cst.Name) and call.func.value == "getattr" and len(call.args) > 1:
        return call.args[0].value if _is_name(call.args[1].value) else None
    maker = call.func
    if not isinstance(maker, cst.Call) or ctx.dotted(maker.func) != "operator.methodcaller" or not call.args:
        return None
    return call.args[0].value if maker.args and _is_name(maker.args[0].value) else None


def _is_name(value: cst.BaseExpression) -> bool:
    return isinstance(value, cst.SimpleString) and value.evaluated_value == _METHOD


CHECK = Check(CODE, "state-dict-method", __doc__, words=(_METHOD, _LOAD, *_LOAD_HOOKS), find=find, stops=stops)
