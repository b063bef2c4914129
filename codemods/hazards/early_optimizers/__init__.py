"""**What it does.** Finds optimizers of a model that is wrapped, where they are not seen to be built below the wrap.

**Why.** FSDP2 puts new parameters into the model. An optimizer that holds the old ones updates nothing, without an
error. FM405 moves those that are seen above the wrap, or rebinds them. This is about what it does not see:
the model comes to the optimizer in another object than to the wrap.

## Example

```python
import torch
from types import SimpleNamespace
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main(config):
    net = torch.nn.Linear(config.width, 2)
    state = SimpleNamespace(model=net, optimizer=torch.optim.SGD(net.parameters()))
    state.model = FSDP(state.model, use_orig_params=True)
    return state
```

## Use instead

```python
import torch
from types import SimpleNamespace
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main(config):
    net = FSDP(torch.nn.Linear(config.width, 2), use_orig_params=True)
    return SimpleNamespace(model=net, optimizer=torch.optim.SGD(net.parameters()))
```

## Fix safety

Nothing is changed: build the optimizer from the wrapped model.

## References

- https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding
from codemods.plan import PlannedContext
from codemods.reading.code.shapes import called_on
from codemods.reading.code.words import last_name, words
from codemods.reading.models.just_made import is_just_made
from codemods.reading.optimizers.makers import is_optimizer
from codemods.reading.optimizers.prewrap.outward import Early, is_made_anew
from codemods.reading.optimizers.prewrap.references import PrewrapReference
from codemods.reading.parameters.of_model import READERS
from codemods.reading.wraps.wrapped import wrapped_module

from .births import are_other_objects

CODE = "FM454"

_MESSAGE = "an optimizer of a model that is wrapped elsewhere: built above the wrap it would update nothing"
_HINT = "build it from the wrapped model, below the wrap"
_DEPTH = 2
"""How many names are followed that stand for parameters."""
_CALLS = 7
"""How many calls lead from a script to the wrap, at most: those of torchacc's `accelerate(model)` are six."""


def find(ctx: PlannedContext) -> Iterator[Finding]:
    """One finding for each optimizer."""
    if not ctx.plan.migrates:
        return
    for call in ctx.nodes(cst.Call):
        if call in ctx.plan.built_before or not call.args or not is_optimizer(ctx, call):
            continue
        if any(_is_made_alone(where, model, call, ctx) for where, model in _models(call, ctx, _DEPTH)):
            yield finding(CODE, Level.MANUAL, ctx, call, _MESSAGE, _HINT)


def _models(node: cst.CSTNode, ctx: Context, depth: int) -> Iterator[tuple[Context, cst.BaseExpression]]:
    """The models whose parameters an expression reads, by names that stand for them too, or a library is given."""
    for inner in ctx.inside(node):
        model = called_on(inner, *READERS)
        if model is not None:
            yield ctx, model
        elif isinstance(inner, cst.Call) and depth < _DEPTH and _makes_groups(inner, ctx):
            yield from ((ctx, argument.value) for argument in inner.args)
        elif depth and isinstance(inner, (cst.Name, cst.Attribute)) and isinstance(ctx.parent(inner), cst.Arg):
            for origin in ctx.origins(inner):
                if origin.node is not None and not isinstance(origin.node, (cst.ClassDef, cst.FunctionDef)):
                    yield from _models(origin.node, origin.file, depth - 1)


def _makes_groups(call: cst.Call, ctx: Context) -> bool:
    """`timm.optim.param_groups_weight_decay(net)`."""
    is_said = words(last_name(call.func)) & {"group", "groups", "param", "parameters", "params"}
    return bool(is_said) and ctx.dotted(call.func) is not None


def _is_made_alone(where: Context, model: cst.BaseExpression, optimizer: cst.Call, ctx: PlannedContext) -> bool:
    """Whether the very module is wrapped somewhere, and this is not seen to be the wrapped one, nor behind the wrap."""
    held = where.kinds(model)
    if ModelKind.DDP in held or (ModelKind.FSDP in held and not is_just_made(where, model)):
        return False
    made = {origin.node for origin in where.origins(model) if _is_made_once(origin.node)}
    for file, wrap in ctx.wrapping.calls(ctx.path):
        module = wrapped_module(wrap)
        if module is None or not made & {origin.node for origin in file.origins(module)} or _is_seen(wrap, ctx):
            continue
        if _is_behind(optimizer, ctx, wrap, file) or are_other_objects(where, model, file, module):
            continue
        if file.path != ctx.path or not (ctx.excludes(wrap, optimizer) or _is_made_anew(optimizer, wrap, ctx)):
            return True
    return False


def _is_behind(optimizer: cst.Call, ctx: Context, wrap: cst.Call, file: Context) -> bool:
    """Whether the same function wraps above it, or calls above it what does."""
    waiting, seen = [(file, wrap)], set[cst.CSTNode]()
    for _ in range(_CALLS):
        for where, call in waiting:
            if where.path == ctx.path and where.scope(call) is ctx.scope(optimizer):
                if ctx.span(call)[1] <= ctx.span(optimizer)[0]:
                    return True
        inner = [(where, call) for where, call in waiting if where.scope(call) not in seen]
        seen.update(where.scope(call) for where, call in inner)
        waiting = [outer for where, call in inner for outer in where.callers(call)]
    return False


def _is_made_once(node: cst.CSTNode | None) -> bool:
    """`Net(config)`, and no `component(*args)`, by which a program makes whatever it makes."""
    return isinstance(node, cst.Call) and not any(argument.star for argument in node.args)


def _is_made_anew(optimizer: cst.Call, wrap: cst.Call, ctx: Context) -> bool:
    """Whether the program builds another in its place, below the wrap."""
    return is_made_anew(PrewrapReference(optimizer, True), Early(ctx, wrap, "", (), ()))


def _is_seen(wrap: cst.Call, ctx: PlannedContext) -> bool:
    """Whether an optimizer is seen above it, or a list of the parameters for one: FM405 deals with them."""
    planned = ctx.plan.wraps.get(wrap)
    return planned is None or bool(planned.relocations)


CHECK = Check(CODE, "optimizer-of-the-unwrapped", __doc__, words=(*READERS, "optim"), find=find)
