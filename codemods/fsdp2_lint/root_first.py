"""**What it does.** Finds a model that is sharded before the modules inside of it.

**Why.** A `fully_shard` call takes all parameters that are not sharded yet into its group. After the root has taken
them, a call for a block has nothing left, or raises, with part of the model converted.

## Example

```python
from torch.distributed.fsdp import fully_shard


def shard(model):
    fully_shard(model)
    for layer in model.layers:
        fully_shard(layer)
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard


def shard(model):
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
```

## Fix safety

Nothing is changed. Only calls in one function are compared, by the names they are written with.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.code.places import base, place
from codemods.reading.own_fsdp2.shardings import WORDS, comes_before, fully_shard_calls, known_as

CODE = "FM503"

_MESSAGE = "the model around this module is sharded already, with this module's parameters in its own group"
_HINT = "shard the inner modules first, and the model last"


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each call that comes too late."""
    for call, where in fully_shard_calls(ctx):
        parts = where.split(".")
        outer = {".".join(parts[:n]) for n in range(1, len(parts))}
        is_part = _is_part(call, where)
        wholes = (
            (other, {model, known_as(ctx, other, model)})
            for other, model in fully_shard_calls(ctx)
            if not _is_part(other, model)
        )
        if any(
            comes_before(ctx, other, call)
            and (outer & names or (is_part and where in names and _is_same(other, call, ctx)))
            for other, names in wholes
        ):
            yield finding(CODE, Level.MANUAL, ctx, call, _MESSAGE, _HINT)


def _is_part(call: cst.Call, where: str) -> bool:
    """Whether a loop variable is sharded, or an item of it, a part of what the loop goes over; not the model itself."""
    given = call.args[0].value
    found = base(given) if isinstance(given, cst.Subscript) else place(given)
    return found is not None and found != where


def _is_same(other: cst.Call, call: cst.Call, ctx: Context) -> bool:
    """Whether the name of the model that is sharded above means it still: `model = fully_shard(model)`."""
    given, holder = other.args[0].value, ctx.parent(other)
    targets = [ctx.code(target.target) for target in holder.targets] if isinstance(holder, cst.Assign) else []
    return ctx.code(given) in targets or ctx.same_meaning(given, call)


CHECK = Check(CODE, "root-sharded-first", __doc__, words=WORDS, find=find)
