"""**What it does.** Finds units that write to their input in place: `x += …`, or an activation with `inplace=True` that
gets it first.

**Why.** `fully_shard` hands a unit views of those inputs that need gradients, which it makes in a function of its own,
and autograd refuses to change such a view ("Output 0 of RegisterPostBackwardFunction is a view and is being modified
inplace", torch 2.13). FSDP1 handed on the inputs themselves.

## Example

```python
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.act = nn.ReLU(inplace=True)
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return self.linear(self.act(x))


def wrap(net):
    return FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Block}))
```

## Use instead

```python
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.act = nn.ReLU()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return self.linear(self.act(x))


def wrap(net):
    return FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Block}))
```

## Fix safety

Nothing is changed: whoever else holds the input may count on what is written to it. The classes of a policy are looked
at, and what they hand their input to. What stands behind the first input may need no gradient, as a mask or a cache:
that is for review.

## References

- `FSDPParamGroup._register_post_backward_hook` of `torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py`
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.code.places import bound
from codemods.reading.code.shapes import keywords, parameter_names
from codemods.reading.code.words import is_name
from codemods.reading.forwards.calls import is_without_grad
from codemods.reading.models.class_layout import with_bases
from codemods.reading.units.held import unit_classes

CODE = "FM459"

_FORWARD = "forward"
_IN_PLACE = "inplace"
_SEQUENTIAL = "torch.nn.Sequential"
_FIRST = frozenset({"ReLU", "ReLU6", "SELU", "CELU", "SiLU", "Mish", "Hardswish", "Hardsigmoid"})
"""torch's activations of which `inplace` is the first argument, or the second behind a number."""
_NO_WRITES = frozenset({"requires_grad_", "retain_grad_"})
_DEPTH = 3
"""Modules, each in the one before, that an input is followed into."""
_HINT = "make another tensor of it: `x = x + …` for `x += …`, and no inplace=True for what gets it first"


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each class and what it writes to."""
    units = {each for where, call in ctx.wrapping.calls(ctx.path) for each in unit_classes(where, call)}
    for owner in ctx.nodes(cst.ClassDef) if units else ():
        if owner not in units:
            continue
        for name, node in _writes(ctx, owner):
            message = (
                f"a unit writes to its input `{name}` in place: where that needs a gradient, it is a view that"
                " fully_shard made, and the forward raises"
            )
            level = Level.MANUAL if name == _first(ctx, owner) else Level.REVIEW
            yield finding(CODE, level, ctx, node, message, _HINT)


def _forward(ctx: Context, owner: cst.ClassDef) -> tuple[Context, cst.FunctionDef] | None:
    """The one that objects of a class have, be it of a base."""
    for where, each in with_bases(ctx, owner):
        for node in each.body.body:
            if isinstance(node, cst.FunctionDef) and node.name.value == _FORWARD:
                return where, node
    return None


def _first(ctx: Context, owner: cst.ClassDef) -> str:
    found = _forward(ctx, owner)
    return next(iter(parameter_names(found[1])[1:]), "") if found is not None else ""


def _writes(ctx: Context, owner: cst.ClassDef, depth: int = _DEPTH) -> Iterator[tuple[str, cst.CSTNode]]:
    """The inputs that a forward of this file writes to while they are its inputs, and where, each once."""
    where, forward = _forward(ctx, owner) or (ctx, None)
    if forward is None or where is not ctx:
        return
    inputs = {name: ctx.span(forward)[1] for name in parameter_names(forward)[1:]}
    for target, end in _bindings(ctx, forward):
        inputs.update({name: end for name in bound(target) if end < inputs.get(name, 0)})
    for node in ctx.inside(forward.body):
        if (
            isinstance(node, cst.Name)
            and ctx.span(node)[0] < inputs.get(node.value, 0)
            and _is_written(node, ctx, depth)
        ):
            inputs.pop(node.value)
            yield node.value, node


def _bindings(ctx: Context, forward: cst.FunctionDef) -> Iterator[tuple[cst.BaseExpression, int]]:
    """What a function assigns to, and the end of that: up to there a name means what it meant before."""
    for node in ctx.inside(forward.body):
        if isinstance(node, cst.Assign):
            yield from ((each.target, ctx.span(node)[1]) for each in node.targets)
        elif isinstance(node, (cst.For, cst.CompFor)):
            yield node.target, ctx.span(node.target)[1]


def _is_written(name: cst.Name, ctx: Context, depth: int) -> bool:
    holder = ctx.parent(name)
    around = ctx.parent(holder) if holder is not None else None
    if is_without_grad(ctx.ancestors(name), ctx):
        return False
    if isinstance(holder, cst.AugAssign):
        return holder.target is name and not isinstance(holder.value, (cst.Integer, cst.SimpleString))
    if isinstance(holder, cst.Subscript) and holder.value is name:
        return isinstance(around, (cst.AssignTarget, cst.AugAssign)) and around.target is holder
    if isinstance(holder, cst.Attribute) and holder.value is name:
        method = holder.attr.value
        is_called = isinstance(around, cst.Call) and around.func is holder
        return is_called and method.endswith("_") and not method.startswith("_") and method not in _NO_WRITES
    if isinstance(holder, cst.Arg) and isinstance(around, cst.Call) and around.args[0] is holder:
        return _writes_first(around, ctx, depth)
    return False


def _writes_first(call: cst.Call, ctx: Context, depth: int) -> bool:
    """Whether what is called writes to the first that it is given: `F.relu(x, inplace=True)`, `self.act(x)`."""
    if _is_in_place(call) or ((ctx.dotted(call.func) or "").startswith("torch.") and _ends(call.func)):
        return True
    modules = (each for each in ctx.origins(call.func) if isinstance(each.node, cst.Call))
    return depth > 0 and any(_is_written_by(each.node, each.file, depth - 1) for each in modules)


def _is_written_by(made: cst.CSTNode | None, ctx: Context, depth: int) -> bool:
    """Whether a module that is made here writes to its first input."""
    if not isinstance(made, cst.Call):
        return False
    dotted = ctx.dotted(made.func) or ""
    if dotted == _SEQUENTIAL:
        return bool(made.args) and _is_written_by(made.args[0].value, ctx, depth)
    if dotted.startswith("torch.nn."):
        is_given = dotted.rsplit(".")[-1] in _FIRST and any(is_name(each.value, "True") for each in made.args[:1])
        return is_given or _is_in_place(made)
    classes = ((each.file, each.node) for each in ctx.origins(made.func) if isinstance(each.node, cst.ClassDef))
    for where, owner in classes:
        first = _first(where, owner)
        if any(name == first for name, _ in _writes(where, owner, depth)):
            return True
    return False


def _is_in_place(call: cst.Call) -> bool:
    return is_name(keywords(call.args).get(_IN_PLACE), "True")


def _ends(function: cst.BaseExpression) -> bool:
    name = function.attr.value if isinstance(function, cst.Attribute) else getattr(function, "value", "")
    return name.endswith("_") and not name.startswith("_")


CHECK = Check(CODE, "inputs-in-place", __doc__, words=(_FORWARD,), find=find)
