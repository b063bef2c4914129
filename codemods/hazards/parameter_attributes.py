"""**What it does.** Finds attributes that are set on parameters of a model that is wrapped later, and read somewhere.

**Why.** `fully_shard` puts new parameters in the place of the model's: what was set on the old ones is gone, and
`getattr(p, "is_model_parallel", False)` is False for all of them, without an error. FSDP1 with `use_orig_params=True`
kept the parameters and what was set on them. While a unit is gathered for its forward, its parameters are other objects
again.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    net.embedding.weight.is_shared = True
    model = FSDP(net, use_orig_params=True)
    return [p for p in model.parameters() if not getattr(p, "is_shared", False)]
```

## Use instead

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    model = FSDP(net, use_orig_params=True)
    return [p for name, p in model.named_parameters() if name != "embedding.weight"]
```

## Fix safety

It is reported, for you to decide, and where the attribute is asked for by `getattr` or `hasattr` a sharded parameter
raises. Setting the attribute again behind `fully_shard` is enough for
code that reads it outside of a forward.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Import, Level, ModelKind, Raise, finding
from codemods.reading.model_parameters import READERS, parameter_of
from codemods.reading.program import others

CODE = "FM441"

_TENSORS = frozenset({"weight", "bias"})
_OF_TENSORS = frozenset({"data", "grad", "requires_grad", "names"})
_OF_TENSORS |= {"device", "dtype", "is_leaf", "layout", "ndim", "shape"}
"""What every tensor has: rules of their own know what becomes of the first ones; the others only a mock lets set."""


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each attribute, where it is first set."""
    for name, node in _lost(ctx).items():
        yield finding(
            CODE,
            Level.MANUAL,
            ctx,
            node,
            f"fully_shard replaces the parameters: the attribute `{name}` that is set here and read elsewhere is gone",
            f"set `{name}` again on model.named_parameters() behind fully_shard, or ask for the parameter's name",
        )


def stops(ctx: Context) -> Iterator[tuple[Context, Raise]]:
    """Where `getattr(p, name, False)` and `hasattr(p, name)` would answer that there is none. `p.name` fails itself."""
    for name in _lost(ctx):
        why = f"fully_shard replaced the parameters: set `{name}` again behind it"
        for file in (ctx, *others(ctx, name)):
            for call in _asks(file, name):
                model = _model_around(file, call)
                yield file, Raise(call, CODE, why, *((model,) if model is not None else (call.args[0].value, _DTENSOR)))


_DTENSOR = Import("torch.distributed.tensor", "DTensor")


def _lost(ctx: Context) -> dict[str, cst.CSTNode]:
    """The attributes, each with the place where it is first set."""
    found: dict[str, cst.CSTNode] = {}
    if not ctx.wrapping.is_any:
        return found
    for node, owner, name in _stores(ctx):
        if name not in found and name not in _OF_TENSORS and _is_parameter(owner, ctx) and _is_read(name, ctx):
            found[name] = node
    return found


def _model_around(ctx: Context, call: cst.Call) -> cst.BaseExpression | None:
    """The model whose parameters a comprehension goes over: above it there is no such parameter to ask."""
    for outer in ctx.ancestors(call):
        if isinstance(outer, cst.BaseStatement):
            return None
        loop = outer.for_in if isinstance(outer, cst.BaseSimpleComp) else None
        for inner in ctx.inside(loop.iter) if loop is not None else ():
            if (
                isinstance(inner, cst.Call)
                and isinstance(inner.func, cst.Attribute)
                and inner.func.attr.value in READERS
            ):
                return inner.func.value
    return None


def _stores(ctx: Context) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression, str]]:
    """`p.name = value` and `setattr(p, "name", value)`: the statement, `p`, and the name."""
    for target in ctx.nodes(cst.AssignTarget):
        if isinstance(target.target, cst.Attribute):
            yield target, target.target.value, target.target.attr.value
    for call in ctx.nodes(cst.Call):
        if isinstance(call.func, cst.Name) and call.func.value == "setattr" and len(call.args) == 3:
            name = call.args[1].value
            if isinstance(name, cst.SimpleString):
                yield call, call.args[0].value, str(name.evaluated_value)


def _is_parameter(node: cst.BaseExpression, ctx: Context) -> bool:
    """Whether an object is a parameter of a module that is not sharded yet, as far as that is seen."""
    if isinstance(node, cst.Attribute) and node.attr.value in _TENSORS:
        return ModelKind.FSDP not in ctx.kinds(node.value)
    if any(isinstance(o.node, cst.Call) and o.file.dotted(o.node.func) in _MAKERS for o in ctx.origins(node)):
        return True
    return isinstance(node, cst.Name) and _is_turn(node, ctx)


_MAKERS = frozenset({"torch.nn.Parameter", "torch.nn.parameter.Parameter"})


def _is_turn(name: cst.Name, ctx: Context) -> bool:
    """Whether it is the variable of a loop over the parameters of a module that is not sharded yet."""
    for loop in ctx.ancestors(name):
        if not isinstance(loop, cst.For):
            continue
        for call in ctx.inside(loop.iter):
            if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and call.func.attr.value in READERS:
                turn = parameter_of(call, loop)
                if isinstance(turn, cst.Name) and turn.value == name.value:
                    return ModelKind.FSDP not in ctx.kinds(call.func.value)
    return False


def _is_read(name: str, ctx: Context) -> bool:
    return any(_reads(file, name) for file in (ctx, *others(ctx, name)))


def _reads(ctx: Context, name: str) -> bool:
    """`p.name` where it is not set, or its name as the argument of `getattr` or `hasattr`."""
    for node in ctx.nodes(cst.Attribute):
        if node.attr.value == name and not isinstance(ctx.parent(node), cst.AssignTarget):
            return True
    return any(_asks(ctx, name))


def _asks(ctx: Context, name: str) -> Iterator[cst.Call]:
    """`getattr(p, "name", False)`, `hasattr(p, "name")`."""
    for call in ctx.nodes(cst.Call):
        if isinstance(call.func, cst.Name) and call.func.value in {"getattr", "hasattr"} and len(call.args) > 1:
            asked = call.args[1].value
            if isinstance(asked, cst.SimpleString) and asked.evaluated_value == name:
                yield call


CHECK = Check(
    CODE, "attribute-of-a-parameter", __doc__, words=(*READERS, "Parameter", *_TENSORS), find=find, stops=stops
)
