"""**What it does.** With `--prefetch`, each unit is told which one comes next in forward, and which one in backward.

**Why.** FSDP2 prefetches by itself in backward, and in forward only as far as the CPU runs ahead. Told explicitly, a
unit's all-gather is issued before the forward of the one before it, which helps where the CPU is what the GPU waits
for. FSDP1 had `forward_prefetch=True`, which followed the order of the first iteration; a list of one's own it had
not.

## Example

```python
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def shard(model: nn.Module):
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
```

## Use instead

```python
from itertools import pairwise

import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def shard(model: nn.Module):
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    for unit, following in pairwise(model.layers):
        unit.set_modules_to_forward_prefetch([following])
        following.set_modules_to_backward_prefetch([unit])
```

## Fix safety

The same numbers (measured on 2 gloo ranks: every loss of 50 steps equal to the last bit, as many all-gathers of as
many bytes). The units are taken in the order of the list that the program loops over, else in the order in which they
are registered: where forward runs them in another order, gathers come too early and cost memory. One more unit is in
memory than without.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.FSDPModule.set_modules_to_forward_prefetch
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from codemods.api import FSDP_MODULE, Context, Fix, Import, Level, Upgrade, finding
from codemods.reading.code.enclosing import names_around
from codemods.reading.code.places import place
from codemods.reading.own_fsdp2.shardings import IN_ONE_LOOP, Sharding, cannot, rootless, shardings, tests_around

CODE = "FM602"

_METHODS = ("set_modules_to_forward_prefetch", "set_modules_to_backward_prefetch")
_PAIRWISE = Import("itertools", "pairwise")


def edit(ctx: Context, choice: str) -> Iterator[Fix]:
    """One fix for each model; none where the program sets what is prefetched."""
    if ctx.mentions(*_METHODS):
        return
    yield from rootless(CODE, ctx, IN_ONE_LOOP, _BY_HAND)
    for sharding in shardings(ctx):
        yield _of_model(sharding)


_BY_HAND = "call set_modules_to_forward_prefetch([…]) of each unit below the last fully_shard"


def _of_model(sharding: Sharding) -> Fix:
    ctx = sharding.file
    why = _obstacle(sharding)
    if why:
        return cannot(CODE, ctx, sharding.root, why, _BY_HAND)
    in_order = _list_of(sharding)
    taken = names_around(ctx, sharding.root)
    unit, following, units = (_free(name, taken) for name in ("unit", "following", "units"))
    model, lines, imports = sharding.known_as, [], [ctx.named(_PAIRWISE, sharding.root)]
    if in_order is None:
        kind = ctx.named(FSDP_MODULE, sharding.root)
        imports.append(kind)
        test = f"isinstance({unit}, {kind.local}) and {unit} is not {model}"
        parts = (unit, f"for {unit} in {model}.modules()", f"if {test}")
        lines = _comprehension(sharding, f"{units} = [", parts)
    lines += [
        f"for {unit}, {following} in {imports[0].local}({in_order or units}):",
        f"{ctx.indent}{unit}.{_METHODS[0]}([{following}])",
        f"{ctx.indent}{following}.{_METHODS[1]}([{unit}])",
    ]
    message = f"the units of `{model}` prefetch one another"
    if in_order is not None:
        said = finding(CODE, Level.REWRITTEN, ctx, sharding.root, f"{message}, in the order of `{in_order}`")
    else:
        hint = "look whether forward runs them in this order: the numbers are the same in any, time and memory are not"
        said = finding(CODE, Level.REVIEW, ctx, sharding.root, f"{message}, in the order they are registered in", hint)
    return Fix(sharding.below(lines), [said], imports)


def _obstacle(sharding: Sharding) -> str:
    if not sharding.units:
        return f"no part of `{sharding.model}` is sharded apart from it in this function: there is nothing to prefetch"
    if sharding.has_twin:
        return f"`{sharding.model}` is sharded in several ways"
    if sharding.statement is None or not (sharding.is_named or sharding.is_bound):
        return "the model is sharded inside of a longer expression"
    return ""


def _list_of(sharding: Sharding) -> str | None:
    """`model.layers` where the units are what one loop goes over, in its order, and nothing else is one."""
    (unit, *others), ctx = sharding.units, sharding.file
    if others or unit.loop is None or not isinstance(unit.loop.target, cst.Name):
        return None
    is_whole = place(unit.call.args[0].value) == unit.loop.target.value
    looped = place(unit.loop.iter)
    return looped if is_whole and not list(tests_around(ctx, unit.call, unit.loop)) else None


def _comprehension(sharding: Sharding, start: str, parts: Sequence[str]) -> list[str]:
    """In one line, in three where that is too long, or with each part on a line of its own."""
    ctx, inner = sharding.file, " ".join(parts)
    column = ctx.position(sharding.root if sharding.statement is None else sharding.statement)[1]
    if column + len(start) + len(inner) <= ctx.width:
        return [f"{start}{inner}]"]
    lines = [inner] if column - 1 + len(ctx.indent) + len(inner) <= ctx.width else parts
    return [start, *(f"{ctx.indent}{line}" for line in lines), "]"]


def _free(name: str, taken: frozenset[str]) -> str:
    return next(each for each in (name, f"sharded_{name}", f"fsdp_{name}", f"{name}_") if each not in taken)


UPGRADE = Upgrade(CODE, "explicit-prefetch", __doc__, words=("fully_shard",), edit=edit)
