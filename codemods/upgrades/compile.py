"""**What it does.** With `--compile`, each unit is compiled by itself, above its `fully_shard`.

**Why.** What is compiled unit by unit is one graph a class, which all blocks share: it compiles in the time of one
block, and the hooks that gather a unit's parameters stay outside of its graph. Around the whole model they end the
graph (FM510). FSDP1 compiled per block needed its units wrapped first, `use_orig_params=True`, and graphs that know
of the flat parameters.

`module.compile()` works in place: names, keys of state dicts and class tests stay as they were, where
`torch.compile(module)` puts `_orig_mod.` in front of them. A checkpointed block is compiled
with its wrapper: the order is checkpointing, compile, sharding.

## Example

```python
from torch.distributed.fsdp import fully_shard


def shard(model):
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard


def shard(model):
    for layer in model.layers:
        layer.compile()
        fully_shard(layer)
    fully_shard(model)
```

## Fix safety

Rounding differs, because kernels are fused: measured on torch 2.13 with 2 gloo ranks and inductor's CPU code, a small
GPT under a bf16 policy has a loss of 0.98692 in the place of 0.98675 after 50 steps; with the backend `aot_eager`,
which fuses nothing, all losses are equal, with checkpointed blocks too. As many all-gathers of as many bytes. A model
whose units are seen to lie inside of other units, or that the program compiles itself, is left as it is, and said;
units that may (a loop takes inner modules first, or several loops go over all modules) are a review.

## References

- https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.compile
- https://github.com/pytorch/torchtitan/blob/main/torchtitan/models/llama3/parallelize.py
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context, Fix, Level, Upgrade, finding
from codemods.reading.code.places import place
from codemods.reading.code.shapes import called_on
from codemods.reading.code.words import last_name
from codemods.reading.edits.layout import insertion
from codemods.reading.own_fsdp2.shardings import IN_ONE_LOOP, Sharding, Unit, cannot, rootless, shardings

CODE = "FM604"

_CHECKPOINTS = frozenset({"apply_activation_checkpointing", "checkpoint_wrapper", "gradient_checkpointing_enable"})
_BY_HAND = "call compile() of each unit above its fully_shard"


def edit(ctx: Context, choice: str) -> Iterator[Fix]:
    """One fix for each model."""
    yield from rootless(CODE, ctx, IN_ONE_LOOP, _BY_HAND)
    for sharding in shardings(ctx):
        if not sharding.units or not all(_is_compiled(ctx, unit) for unit in sharding.units):
            yield _of_model(sharding)


def _of_model(sharding: Sharding) -> Fix:
    ctx, model = sharding.file, sharding.known_as
    why = _obstacle(sharding)
    if why:
        return cannot(CODE, ctx, sharding.root, why, _BY_HAND)
    edits = [insertion(ctx, unit.call, [f"{place(unit.call.args[0].value)}.compile()"]) for unit in sharding.units]
    message = f"the units of `{model}` are compiled, each by itself"
    late = next((call for call in ctx.calls(ctx.scope(sharding.root)) if _checkpoints_below(sharding, call)), None)
    if late is not None:
        hint = f"checkpointing (line {ctx.position(late)[0]}) belongs above it: checkpointing, compile, sharding"
        return Fix(edits, [finding(CODE, Level.REVIEW, ctx, sharding.root, message, hint)])
    if _may_be_nested(sharding):
        hint = "where one lies inside of another, its hooks end the other's graph: compile the inner ones alone"
        return Fix(edits, [finding(CODE, Level.REVIEW, ctx, sharding.root, message, hint)])
    hint = "the first step compiles; losses are the same up to rounding: check --expect 'loss within 1%'"
    return Fix(edits, [finding(CODE, Level.REWRITTEN, ctx, sharding.root, message, hint)])


def _may_be_nested(sharding: Sharding) -> bool:
    """Whether a loop takes inner modules first, or several loops go over all modules."""
    loops = {unit.loop for unit in sharding.units if unit.loop is not None}
    called = [last_name(loop.iter.func) for loop in loops if isinstance(loop.iter, cst.Call)]
    return len(called) > 1 or "reversed" in called


def _obstacle(sharding: Sharding) -> str:
    ctx = sharding.file
    if not sharding.units:
        return f"no part of `{sharding.model}` is sharded apart from it in this function: compile the model itself"
    for where in ctx.files("compile"):
        call = next((call for call in where.nodes(cst.Call) if _compiles(where, call, sharding)), None)
        if call is not None:
            return f"the program compiles by itself ({where.path.name}:{where.position(call)[0]})"
    loops = [unit.loop for unit in sharding.units if unit.loop is not None]
    if len(set(loops)) < len(loops):
        return "units of one loop lie inside of one another"
    for unit in sharding.units:
        if place(unit.call.args[0].value) is None or not isinstance(ctx.parent(unit.call), cst.Expr):
            return "a unit is sharded inside of a longer expression"
        if unit.loop is not None and place(unit.call.args[0].value) != place(unit.loop.target):
            return "only a part of what the loop goes over is a unit"
    return ""


def _compiles(ctx: Context, call: cst.Call, sharding: Sharding) -> bool:
    """Whether a call compiles the model, or something in the function that shards it."""
    if ctx.dotted(call.func) != "torch.compile" or not call.args:
        return False
    is_here = ctx.path == sharding.file.path and ctx.scope(call) is sharding.file.scope(sharding.root)
    return is_here or place(call.args[0].value) in {sharding.model, sharding.known_as}


def _is_compiled(ctx: Context, unit: Unit) -> bool:
    """Whether `unit.compile()` is called in the function already."""
    where = place(unit.call.args[0].value)
    compiled = (called_on(call, "compile") for call in ctx.calls(ctx.scope(unit.call)))
    return where is not None and any(model is not None and place(model) == where for model in compiled)


def _checkpoints_below(sharding: Sharding, call: cst.Call) -> bool:
    below = sharding.file.span(call)[0] > sharding.file.span(sharding.root)[0]
    return below and last_name(call.func) in _CHECKPOINTS


UPGRADE = Upgrade(CODE, "compile-per-unit", __doc__, words=("fully_shard",), edit=edit)
