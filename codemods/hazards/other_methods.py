"""**What it does.** Finds calls of a wrapped model's own methods that run its layers beside `forward`.

**Why.** Such a call goes past the wrapper, in FSDP1 and in FSDP2: parameters that belong to no inner unit are shards
there. Both raise (`mat2 must be a matrix, got 1-D tensor`; `got mixed torch.Tensor and DTensor`), unless only units
are run; FSDP1 did not with NO_SHARD, where they are whole. FSDP2 can do it: registered once, a method gathers as
`forward` does. One that calls `self(...)` needs nothing, nor one whose layers are all units of the policy.

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
`fully_shard`. With NO_SHARD that is for you to write: FSDP1 ran the method there.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.register_fsdp_forward_method
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding
from codemods.reading.code.places import place
from codemods.reading.forwards.calls import QUIET
from codemods.reading.models.class_layout import model_classes
from codemods.reading.models.just_made import is_just_made
from codemods.reading.parameters.of_model import is_summoned
from codemods.reading.units.held import is_unit, unit_classes
from codemods.reading.wraps.manual import is_constructor
from codemods.reading.wraps.process_groups import REPLICATED, strategies
from codemods.reading.wraps.wrapped import wrapped_module

CODE = "FM426"

_MODULE = frozenset({"train", "eval", "parameters", "modules", "buffers", "children", "apply", "to", "cuda", "cpu"})
_MODULE |= {"float", "half", "bfloat16", "double", "state_dict", "requires_grad_", "zero_grad", "add_module", "forward"}
_PREFIXES = ("named_", "register_", "get_", "set_", "load_", "_")
"""Methods of `nn.Module` itself, and names that those which run no layers have."""


@dataclass(frozen=True)
class _Method:
    """A method of a model's class, and the layers that it runs past the wrapper."""

    definition: cst.FunctionDef
    layers: Sequence[str]
    """Those that are not seen to be units of their own."""
    was_whole: bool
    """Whether FSDP1 ran them: with NO_SHARD their parameters were whole."""


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each method, where it is called first."""
    if ctx.mentions("register_fsdp_forward_method"):
        return
    told: set[cst.FunctionDef | str] = set()
    for call in ctx.nodes(cst.Call):
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value == "forward":
            continue
        name, method = call.func.attr.value, _method(ctx, call.func)
        key, is_own = (method.definition, bool(method.layers)) if method is not None else (name, False)
        if key in told or not (is_own or _is_of_library(ctx, call, call.func)) or is_summoned(call, ctx):
            continue
        told.add(key)
        layers = " and ".join(f"self.{layer}" for layer in method.layers) if method is not None else ""
        runs = f"runs {layers}" if layers else "of a library's model may run layers"
        message = f"{name} {runs} past the wrapper, and raises where that is in no unit of its own; so did FSDP1"
        hint = f'register_fsdp_forward_method(model, "{name}") once, below the last fully_shard'
        if method is None or method.was_whole:
            yield finding(CODE, Level.MANUAL, ctx, call, f"{message} not with NO_SHARD", hint)
        else:
            yield finding(CODE, Level.REVIEW, ctx, call, f"{message}, but for NO_SHARD", f"if it raises, {hint}")


def _is_of_library(ctx: Context, call: cst.Call, called: cst.Attribute) -> bool:
    """`vae.encode(x)` of a library's model, where FSDP1 ran it: what the method does is not seen, but for `generate`,
    which calls the model itself.
    """
    name = called.attr.value
    if (
        not call.args
        or name in {"generate", *_MODULE, *QUIET}
        or name.startswith(_PREFIXES)
        or place(called.value) in {None, "self"}
    ):
        return False
    if ModelKind.FSDP not in ctx.kinds(called.value):
        return False
    wraps = [(o.file, o.node) for o in ctx.origins(called.value) if isinstance(o.node, cst.Call)]
    return any(
        is_constructor(where, wrap) and _is_replicated(where, wrap) and _is_made_by_library(where, wrapped_module(wrap))
        for where, wrap in wraps
    )


def _is_made_by_library(ctx: Context, module: cst.BaseExpression | None) -> bool:
    made = ctx.origins(module) if module is not None else ()
    return any(isinstance(o.node, cst.Call) and o.file.dotted(o.node.func) is not None for o in made)


def _method(ctx: Context, called: cst.Attribute) -> _Method | None:
    """The method of the model's class that is called."""
    if place(called.value) in {None, "self"} or not ctx.defines(called.attr.value):
        return None
    if ModelKind.FSDP not in ctx.kinds(called.value):
        return None
    if is_just_made(ctx, called.value):
        return None
    for origin in ctx.origins(called.value):
        if not isinstance(origin.node, cst.Call) or not is_constructor(origin.file, origin.node):
            continue
        classes = list(model_classes(origin.file, origin.node))
        for where, owner in classes:
            methods = {n.name.value: n for n in owner.body.body if isinstance(n, cst.FunctionDef)}
            method = methods.get(called.attr.value)
            if method is not None:
                units = unit_classes(origin.file, origin.node)
                run = dict.fromkeys(_layers(where, method, methods, set()))
                layers = [each for each in run if not is_unit(each, classes, units)]
                return _Method(method, layers, _is_replicated(origin.file, origin.node))
    return None


def _is_replicated(ctx: Context, wrap: cst.Call) -> bool:
    names = strategies(ctx, wrap)
    return bool(names) and all(name == REPLICATED for name in names)


def _layers(
    ctx: Context, method: cst.FunctionDef, methods: dict[str, cst.FunctionDef], seen: set[str]
) -> Iterator[str]:
    """The layers of `self.layer(...)` in a method, and in others that it calls."""
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
            if name not in seen:
                yield from _layers(ctx, methods[name], methods, seen)
        elif name not in _MODULE and not name.startswith(_PREFIXES):
            yield name


CHECK = Check(
    CODE, "other-methods-of-model", __doc__, words=("backward", "no_grad", "inference_mode", "eval"), find=find
)
