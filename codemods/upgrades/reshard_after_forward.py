"""**What it does.** With `--reshard-after-forward N`, each unit keeps its parameters split over N ranks between
forward and backward, where they are split over all ranks again without.

**Why.** The gather of the backward then stays among N ranks: those of one node, whose links are fast. Each rank holds
an N-th of the model in between. FSDP1 could only keep all of a unit (`SHARD_GRAD_OP`), or split it over all ranks
again (`FULL_SHARD`).

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
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def shard(model: nn.Module):
    for layer in model.layers:
        fully_shard(layer, reshard_after_forward=8)
    fully_shard(model)
```

## Fix safety

The same numbers, measured on 2 and 4 gloo ranks: every loss of 50 steps equal to the last bit; on 4 ranks with N = 2,
299 of the 624 KB that a step gathers were gathered among two ranks. N has to divide the ranks that the model is
sharded over, or `fully_shard` raises ValueError when it is called; N equal to them is what holds without. The root is
left as it is: it stays whole between forward and backward. In a dict that is passed on (`**kwargs`), the argument is
replaced for the units alone. One that only run time knows is not replaced, and said.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context, Edit, Fix, Level, Upgrade, finding
from codemods.reading.call_layout import call_with, quoted_argument
from codemods.reading.keyword_dicts import entries
from codemods.reading.shardings import Sharding, argument, cannot, loops_without_root, shardings

CODE = "FM601"

_NAME = "reshard_after_forward"
_LITERALS = ("True", "False", "None")


def edit(ctx: Context, ranks: str) -> Iterator[Fix]:
    """One fix for each model."""
    for call in loops_without_root(ctx):
        yield Fix(findings=[cannot(CODE, ctx, call, "the model is sharded in the same loop as its units", _BY_HAND)])
    for sharding in shardings(ctx):
        yield from _of_model(sharding, ranks)


_BY_HAND = "call fully_shard for the units in the loop, and for the model below it"


def _of_model(sharding: Sharding, ranks: str) -> Iterator[Fix]:
    ctx = sharding.file
    if not sharding.units:
        why = "no part of `{}` is sharded apart from it in this function: nothing is gathered again in backward"
        yield Fix(
            findings=[cannot(CODE, ctx, sharding.root, why.format(sharding.model), "shard each layer before the model")]
        )
        return
    calls = [unit.call for unit in sharding.units]
    unclear = next((call for call in calls if _is_chosen_elsewhere(ctx, call)), None)
    if unclear is not None:
        why = "whether a unit is resharded is decided at run time"
        yield Fix(findings=[cannot(CODE, ctx, unclear, why, f"give {_NAME}={ranks} where the arguments are chosen")])
        return
    edits = [each for call in calls if (each := _edit(ctx, call, ranks)) is not None]
    if edits:
        message = f"the units of `{sharding.known_as}` stay split over {ranks} ranks between forward and backward"
        hint = f"{ranks} has to divide the ranks that the model is sharded over, and should be those of one node"
        yield Fix(edits, [finding(CODE, Level.REWRITTEN, ctx, sharding.root, message, hint)])


def _is_chosen_elsewhere(ctx: Context, call: cst.Call) -> bool:
    given = argument(call, _NAME)
    if given is not None:
        return not _is_literal(ctx, given.value)
    for each in call.args:
        if each.star:
            known = entries(ctx, each.value)
            if known is None or not all(_is_literal(*value) for value in known.get(_NAME, ())):
                return True
    return False


def _is_literal(ctx: Context, value: cst.BaseExpression) -> bool:
    return isinstance(value, cst.Integer) or ctx.code(value) in _LITERALS


def _edit(ctx: Context, call: cst.Call, ranks: str) -> Edit | None:
    given = argument(call, _NAME)
    if given is not None:
        return Edit(*ctx.span(given.value), ranks) if ctx.code(given.value) != ranks else None
    for each in call.args:
        values = (entries(ctx, each.value) or {}).get(_NAME, ()) if each.star else ()
        if any(where.code(value) != ranks for where, value in values):
            # The dict may be the root's as well, which is not resharded.
            merged = f'**{{**{ctx.quote(each.value)}, "{_NAME}": {ranks}}}'
            if "\n" in ctx.code(call):
                return Edit(ctx.span(each)[0], ctx.span(each.value)[1], merged)
            arguments = [merged if other is each else quoted_argument(ctx, other) for other in call.args]
            return Edit(*ctx.span(call), f"{ctx.quote(call.func)}({', '.join(arguments)})")
        if values:
            return None
    return call_with(ctx, call, ctx.quote(call.func), f"{_NAME}={ranks}")


UPGRADE = Upgrade(CODE, "reshard-to-fewer-ranks", __doc__, words=("fully_shard",), edit=edit)
