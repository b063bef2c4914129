"""**What it does.** Finds sharded parameters and gradients in code that takes plain tensors alone: a collective of
`torch.distributed`, a distribution of `torch.distributions`, `torch.tensor([...])` of norms, `.numpy()`.

**Why.** FSDP1's parameters were plain tensors, pieces of flat ones. FSDP2's are DTensors, and such code raises: "does
not have a sharding strategy registered", "its data is not allocated yet" (torch 2.13).

## Example

```python
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def share(net, group):
    model = FSDP(net, use_orig_params=True)
    for param in model.parameters():
        dist.broadcast(param.data, src=0, group=group)
```

## Use instead

```python
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def share(net, group):
    model = FSDP(net, use_orig_params=True)
    for param in model.parameters():
        dist.broadcast(param.to_local(), src=0, group=group)
```

## Fix safety

Nothing is changed: whether this rank's piece is meant (`to_local()`) or the whole (`full_tensor()`, on all ranks) is
for a person to say.

## References

- https://docs.pytorch.org/docs/stable/distributed.tensor.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.gradients import collectives_on_gradients
from codemods.reading.model_parameters import READERS
from codemods.reading.sharded_values import is_sharded

CODE = "FM427"

_COLLECTIVES = frozenset(
    f"torch.distributed.{name}"
    for name in ("all_gather", "all_gather_into_tensor", "all_reduce", "broadcast", "gather", "recv", "reduce", "send")
)
_MAKERS = frozenset({"new_empty", "new_full", "new_ones", "new_zeros"})
_NORMS = frozenset({"max", "mean", "min", "norm", "std", "sum", "var"})


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each call."""
    for call in ctx.nodes(cst.Call):
        value = _sharded_argument(call, ctx)
        if value is None or _is_told_already(call, ctx):
            continue
        yield finding(
            CODE,
            Level.MANUAL,
            ctx,
            call,
            f"`{ctx.code(call.func)}` gets a sharded tensor, `{ctx.code(value)}`, and raises: it takes plain ones",
            "give it .to_local(), this rank's piece, or .full_tensor() on all ranks",
        )


def _sharded_argument(call: cst.Call, ctx: Context) -> cst.BaseExpression | None:
    name = ctx.dotted(call.func) or ""
    given = [argument.value for argument in call.args]
    if name in _COLLECTIVES:
        return next((value for value in given if is_sharded(value, ctx)), None)
    if name.startswith("torch.distributions."):
        owners = ((value, _owner(value, _MAKERS)) for value in given)
        return next((v for v, owner in owners if is_sharded(owner, ctx) or _is_optimized(owner, ctx)), None)
    if name == "torch.tensor" and given and isinstance(given[0], (cst.ListComp, cst.GeneratorExp)):
        element = given[0].elt
        owner = _owner(element, _NORMS)
        return element if owner is not element and is_sharded(owner, ctx) else None
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "numpy":
        return call.func.value if is_sharded(call.func.value, ctx) else None
    return None


def _is_optimized(value: cst.BaseExpression, ctx: Context) -> bool:
    """`p.grad`, or what is bound to it, in the program's own optimizer: `for p in group["params"]:`."""
    made = [value, *(each for _, each in ctx.bound(value) or ())] if isinstance(value, cst.Name) else [value]
    grads = [_of_data(each) for each in made]
    names = [g.value for g in grads if isinstance(g, cst.Attribute) and g.attr.value == "grad"]
    loops = [loop for loop in ctx.ancestors(value) if isinstance(loop, cst.For)]
    return any(
        isinstance(name, cst.Name) and ctx.code(loop.target) == name.value and _is_of_group(loop.iter)
        for name in names
        for loop in loops
    )


def _is_of_group(iterated: cst.BaseExpression) -> bool:
    """`group["params"]`."""
    index = iterated.slice[0].slice if isinstance(iterated, cst.Subscript) and len(iterated.slice) == 1 else None
    key = index.value if isinstance(index, cst.Index) else None
    return isinstance(key, cst.SimpleString) and key.evaluated_value == "params"


def _of_data(value: cst.BaseExpression) -> cst.BaseExpression:
    return value.value if isinstance(value, cst.Attribute) and value.attr.value == "data" else value


def _owner(value: cst.BaseExpression, methods: frozenset[str]) -> cst.BaseExpression:
    """`p.grad` of `p.grad.new_full(shape, 0.5)`; any other expression as it is."""
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value in methods:
        return value.func.value
    return value


def _is_told_already(call: cst.Call, ctx: Context) -> bool:
    """Whether the rule for gradients in collectives names the function."""
    function = next((node for node in ctx.ancestors(call) if isinstance(node, cst.FunctionDef)), None)
    return function is not None and call in collectives_on_gradients(function, ctx)


CHECK = Check(CODE, "plain-tensor-code", __doc__, words=(*READERS, "weight", "bias", "params"), find=find)
