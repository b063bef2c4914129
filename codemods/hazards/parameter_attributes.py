"""**What it does.** Finds attributes that are set on parameters of a model that is wrapped later, and read somewhere,
where it is not seen that FSDP1 kept them. Where it is (`use_orig_params=True`), `fully_shard` is followed by a loop
that sets them again.

**Why.** `fully_shard` puts new parameters in the place of the model's: what was set on the old ones is gone, and
`getattr(p, "is_model_parallel", False)` is False for all of them, without an error. FSDP1 with `use_orig_params=True`
kept the parameters and what was set on them. While a unit is gathered for its forward, its parameters are other objects
again.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net, original):
    net.embedding.weight.is_shared = True
    model = FSDP(net, use_orig_params=original)
    return [p for p in model.parameters() if not getattr(p, "is_shared", False)]
```

## Use instead

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net, original):
    model = FSDP(net, use_orig_params=original)
    return [p for name, p in model.named_parameters() if name != "embedding.weight"]
```

## Fix safety

It is reported, for you to decide, and where the attribute is asked for by `getattr` or `hasattr` a sharded parameter
raises. Setting the attribute again behind `fully_shard` is enough for code that reads it outside of a forward; inside
of one FSDP1's parameters were other objects, too.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Emission, Finding, Import, Level, Raise, finding
from codemods.plan import PlannedContext, WrapPlan
from codemods.reading.code.shapes import called_on
from codemods.reading.parameters.attributes import WORDS, asking, set_and_read
from codemods.reading.parameters.of_model import READERS

CODE = "FM441"


def find(ctx: PlannedContext) -> Iterator[Finding]:
    """One finding for each attribute, where it is first set."""
    for name, node in _lost(ctx).items():
        message = (
            f"fully_shard replaces the parameters: the attribute `{name}` that is set here and read elsewhere is gone"
        )
        hint = f"set `{name}` again on model.named_parameters() behind fully_shard, or ask for the parameter's name"
        yield finding(CODE, Level.MANUAL, ctx, node, message, hint)


def stops(ctx: PlannedContext) -> Iterator[tuple[Context, Raise]]:
    """Where `getattr(p, name, False)` and `hasattr(p, name)` would answer that there is none. `p.name` fails itself."""
    for name in _lost(ctx):
        why = f"fully_shard replaced the parameters: set `{name}` again behind it"
        for file, call in asking(ctx, name):
            model = _model_around(file, call)
            yield file, Raise(call, CODE, why, *((model,) if model is not None else (call.args[0].value, _DTENSOR)))


_DTENSOR = Import("torch.distributed.tensor", "DTensor")


def _lost(ctx: PlannedContext) -> dict[str, cst.CSTNode]:
    """The attributes that nothing brings over, each with the place where it is first set."""
    found = set_and_read(ctx) if ctx.wrapping.is_any else {}
    if not found:
        return found
    plans = [ctx.plan.wraps[call] for _, call in ctx.wrapping.calls(ctx.path) if call in ctx.plan.wraps]
    return found if not plans or any(map(_may_lose, plans)) else {}


def _may_lose(wrap: WrapPlan) -> bool:
    """Whether a wrap may lose what FSDP1 kept."""
    if wrap.draft is None:
        return wrap.emission is not Emission.NATIVE  # an `enable_wrap` makes no parameters
    return wrap.draft.carries_attributes is None


def _model_around(ctx: Context, call: cst.Call) -> cst.BaseExpression | None:
    """The model whose parameters a comprehension goes over: above it there is no such parameter to ask."""
    for outer in ctx.ancestors(call):
        if isinstance(outer, cst.BaseStatement):
            return None
        loop = outer.for_in if isinstance(outer, cst.BaseSimpleComp) else None
        for inner in ctx.inside(loop.iter) if loop is not None else ():
            model = called_on(inner, *READERS)
            if model is not None:
                return model
    return None


CHECK = Check(CODE, "attribute-of-a-parameter", __doc__, words=WORDS, find=find, stops=stops)
