"""**What it does.** Finds calls of a wrapped model's own methods that run its layers beside `forward`.

**Why.** Such a call goes past the wrapper, in FSDP1 and in FSDP2: parameters that belong to no inner unit are shards
there. Both raise (`mat2 must be a matrix, got 1-D tensor`; `got mixed torch.Tensor and DTensor`), unless only units
are run. FSDP2 can do it: registered once, a method gathers as `forward` does. One that calls `self(...)` needs
nothing.

## Example

```python
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 4)

    def encode(self, x):
        return self.head(x)


def evaluate(x):
    model = FSDP(Net()).eval()
    return model.encode(x)
```

## Use instead

```python
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 4)

    def encode(self, x):
        return self.head(x)

    def forward(self, x):
        return self.encode(x)


def evaluate(x):
    model = FSDP(Net()).eval()
    return model(x)
```

## Fix safety

Nothing is changed. After the rewrite `register_fsdp_forward_method(model, "encode")` is enough, once and below the last
`fully_shard`.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.register_fsdp_forward_method
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding
from codemods.reading.class_layout import model_classes
from codemods.reading.just_made import is_just_made
from codemods.reading.manual import is_constructor
from codemods.reading.model_parameters import is_summoned
from codemods.reading.places import place

CODE = "FM426"

_MODULE = frozenset({"train", "eval", "parameters", "modules", "buffers", "children", "apply", "to", "cuda", "cpu"})
_MODULE |= {"float", "half", "bfloat16", "double", "state_dict", "requires_grad_", "zero_grad", "add_module", "forward"}
_PREFIXES = ("named_", "register_", "get_", "set_", "load_", "_")
"""Methods of `nn.Module` itself, and names that those which run no layers have."""


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each method, where it is called first."""
    if ctx.mentions("register_fsdp_forward_method"):
        return
    told: set[cst.FunctionDef] = set()
    for call in ctx.nodes(cst.Call):
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value == "forward":
            continue
        method = _method(ctx, call.func)
        if method is None or method in told or is_summoned(call, ctx):
            continue
        told.add(method)
        name = method.name.value
        yield finding(
            CODE,
            Level.REVIEW,
            ctx,
            call,
            f"{name} runs layers past the wrapper, and raises where they are in no unit of their own, as under FSDP1",
            f'register_fsdp_forward_method(model, "{name}") once, below the last fully_shard',
        )


def _method(ctx: Context, called: cst.Attribute) -> cst.FunctionDef | None:
    """The method of the model's class that is called, if it runs layers by itself."""
    if place(called.value) in {None, "self"} or not ctx.defines(called.attr.value):
        return None
    if ModelKind.FSDP not in ctx.kinds(called.value):
        return None
    if is_just_made(ctx, called.value):
        return None
    for origin in ctx.origins(called.value):
        if not isinstance(origin.node, cst.Call) or not is_constructor(origin.file, origin.node):
            continue
        for where, owner in model_classes(origin.file, origin.node):
            methods = {n.name.value: n for n in owner.body.body if isinstance(n, cst.FunctionDef)}
            method = methods.get(called.attr.value)
            if method is not None:
                return method if _runs_layers(where, method, methods, set()) else None
    return None


def _runs_layers(ctx: Context, method: cst.FunctionDef, methods: dict[str, cst.FunctionDef], seen: set[str]) -> bool:
    """Whether a method calls `self.layer(...)`, or another method that does."""
    seen.add(method.name.value)
    for node in ctx.inside(method.body):
        if (
            not isinstance(node, cst.Call)
            or not isinstance(node.func, cst.Attribute)
            or place(node.func.value) != "self"
        ):
            continue
        name = node.func.attr.value
        if name in methods:  # of the class itself
            if name not in seen and _runs_layers(ctx, methods[name], methods, seen):
                return True
        elif name not in _MODULE and not name.startswith(_PREFIXES):
            return True
    return False


CHECK = Check(
    CODE, "other-methods-of-model", __doc__, words=("backward", "no_grad", "inference_mode", "eval"), find=find
)
