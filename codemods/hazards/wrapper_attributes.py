"""**What it does.** Finds `model.temperature = x` on a wrapped model, or on a unit of one, where its class reads
`self.temperature`.

**Why.** FSDP1's model is a wrapper: the attribute was set on that, and the forward of the model inside went on with its
own. FSDP2's model is the model itself, so that what is set comes to its forward, for the first time. Both pass without
a word (torch 2.13).

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        self.temperature = 1.0

    def forward(self, x):
        return self.layer(x) / self.temperature


def train(batches):
    model = FSDP(Net())
    for step, batch in enumerate(batches):
        model.temperature = 1.0 + step
        model(batch).sum().backward()
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        self.temperature = 1.0

    def forward(self, x):
        return self.layer(x) / self.temperature


def train(batches):
    model = FSDP(Net())
    for step, batch in enumerate(batches):
        model(batch).sum().backward()
```

## Fix safety

Nothing is changed: mostly it was meant to come to the forward, and FSDP1 did not let it. To train on as FSDP1 did, take
the line away.

## References

- https://docs.pytorch.org/docs/stable/fsdp.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding
from codemods.reading.code.enclosing import enclosing, is_self
from codemods.reading.code.once import once
from codemods.reading.code.shapes import called_on, indexed_front, is_call_to
from codemods.reading.code.words import last_name, words
from codemods.reading.models.class_layout import sharded_classes, with_bases
from codemods.reading.models.parts import wrapped_around
from codemods.reading.models.plain_objects import is_plain_self
from codemods.reading.parameters.lists import heads

CODE = "FM457"

_MODELS = ("model", "models", "module", "net", "network", "parameters", "backward")
"""What models are called, and what is done with them: a file that sets anything on one holds one of these."""

_INNER = frozenset({"module", "_fsdp_wrapped_module", "_orig_mod"})
"""What wrappers call the model inside."""

_HINT = "to train on as FSDP1 did, take the line away; mostly it is what the program meant"


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each attribute, where it is first set."""
    told: set[str] = set()
    for node, model, name in _stores(ctx):
        if name not in told and not is_self(model, ctx) and _is_set_on_a_wrapper(model, name, ctx):
            told.add(name)
            what = (
                f"`{name}` is set on the model now, whose own code reads it" if name else "this is set on the model now"
            )
            message = f"{what}; FSDP1 set it on its wrapper, where the model inside did not see it"
            yield finding(CODE, Level.REVIEW, ctx, node, message, _HINT)


def _is_set_on_a_wrapper(model: cst.BaseExpression, name: str, ctx: Context) -> bool:
    """Whether an FSDP model, or a unit of one by the policy's classes, is seen to be of a class that reads the name."""
    readers = _modules_that_read(name, ctx) if name else frozenset()
    if (name and not readers) or last_name(model) in _INNER or _is_unwrapped(model, ctx) or _is_being_made(model, ctx):
        return False
    if _is_surely_wrapped(model, ctx):
        return True
    around = wrapped_around(model, ctx) if not _is_in_walk(model, ctx) else None
    if around is None or not _is_surely_wrapped(around[1], around[0]):
        return False
    units = {kind for where, call in ctx.wrapping.calls(ctx.path) for _, kind in sharded_classes(where, call)}
    return not units.isdisjoint(readers)


def _is_surely_wrapped(model: cst.BaseExpression, ctx: Context) -> bool:
    """A variable may be a plain model's on another way; an attribute may be another object's."""
    kinds = ctx.kinds(model) - ({ModelKind.OTHER} if isinstance(model, cst.Name) else set())
    return kinds == {ModelKind.FSDP}


def _is_being_made(model: cst.BaseExpression, ctx: Context) -> bool:
    """`self.encoder` in a module's `__init__`: what holds it is wrapped later."""
    method, holder = enclosing(ctx, model, cst.FunctionDef), indexed_front(model)
    is_made_there = method is not None and method.name.value == "__init__" and is_self(holder, ctx)
    return is_made_there and not is_plain_self(ctx, holder)


def _is_unwrapped(model: cst.BaseExpression, ctx: Context) -> bool:
    """`unwrap(model)` of a function that speaks of `.module`, or is called after it, and a name for `model.module`."""
    made = ctx.bound(model) or () if isinstance(model, cst.Name) else ((ctx, model),)
    return any(
        _is_inside(node) or (isinstance(node, cst.Call) and _unwraps(node, where))
        for where, value in made
        for node in (value, *where.inside(value))
    )


def _unwraps(call: cst.Call, ctx: Context) -> bool:
    if "unwrap" in words(last_name(call.func)):
        return True
    return any(_is_inside(node) for where, function in ctx.runs(call) for node in where.inside(function.body))


def _is_inside(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Attribute) and node.attr.value in _INNER


def _is_in_walk(model: cst.BaseExpression, ctx: Context) -> bool:
    """`for m in model.modules():`, which came to what the wrappers held as well."""
    loops = (outer for outer in ctx.ancestors(model) if isinstance(outer, (cst.For, cst.BaseComp)))
    walked = (each for loop in loops for head in heads(loop) for each in (head.iter, *ctx.inside(head.iter)))
    return any(called_on(each, "modules", "named_modules") is not None for each in walked)


def _stores(ctx: Context) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression, str]]:
    """`model.name = value`, `model.name *= value` and `setattr(model, "name", value)`; no name that is computed."""
    targets = [each.target for each in ctx.nodes(cst.AssignTarget)]
    targets += [each.target for each in ctx.nodes(cst.AugAssign)]
    for target in targets:
        if isinstance(target, cst.Attribute):
            yield target, target.value, target.attr.value
    for call in ctx.nodes(cst.Call):
        if is_call_to(call, "setattr") and len(call.args) == 3:
            name = call.args[1].value
            if isinstance(name, cst.SimpleString):
                yield call, call.args[0].value, str(name.evaluated_value)
            elif ModelKind.FSDP not in ctx.kinds(call.args[2].value):  # no unit in the place of a child
                yield call, call.args[0].value, ""


@once
def _modules_that_read(name: str, ctx: Context) -> frozenset[cst.ClassDef]:
    """The program's classes of modules that have a method which reads `self.name`."""
    found: set[cst.ClassDef] = set()
    for where, node in ctx.attributes(name):
        owner = enclosing(where, node, cst.ClassDef) if is_self(node.value, where) else None
        if owner is None or owner in found or isinstance(where.parent(node), cst.AssignTarget):
            continue
        bases = (base for file, kind in with_bases(where, owner) for base in map(file.dotted, _bases(kind)))
        if "torch.nn.Module" in bases:
            found.add(owner)
    return frozenset(found)


def _bases(kind: cst.ClassDef) -> Iterator[cst.BaseExpression]:
    return (base.value for base in kind.bases)


CHECK = Check(CODE, "attribute-of-the-wrapper", __doc__, words=_MODELS, find=find)
