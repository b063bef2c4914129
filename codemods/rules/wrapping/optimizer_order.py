"""**What it does.** Puts an optimizer that is built before the model is wrapped, and what is made of it, below the
wrap. Where that cannot be proved to be the same, it hands the sharded parameters over with `rebind_optimizer` of the
support module.

**Why.** FSDP1 with use_orig_params=True goes on training the parameters that were there before. FSDP2 puts new ones
in their place: an optimizer that holds the old ones updates nothing, without an error, and keeps the whole model in
memory.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def set_up(model, loader):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, len(loader))
    model = FSDP(model, use_orig_params=True)
    return model, optimizer, scheduler
```

## Use instead

```python
import torch
from torch.distributed.fsdp import fully_shard


def set_up(model, loader):
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, len(loader))
    return model, optimizer, scheduler
```

## Fix safety

Names and shapes of the parameters are those from before the wrap, so that parameter groups stay as they were.
Statements are moved only when nothing between their old place and the new one reads what they make or changes what
they read. Under FSDP1 without use_orig_params=True such an optimizer trained nothing (the loss stays what it was, torch
2.13); now it trains, and that is reported once a wrap.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import libcst as cst

from codemods.api import Context, Emission, Fix, Level, Rule, finding, left
from codemods.plan import PlannedContext
from codemods.reading.optimizers.prewrap import Rebinding, Relocation, is_only_counted, keeps_lists
from codemods.reading.wraps.flat_parameters import makes_flat_parameters

CODE = "FM405"


def fix(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    planned = ctx.plan.wraps.get(call)
    if planned is None or planned.emission is Emission.SKIP or not planned.relocations:
        return None
    several, was_flat = planned.relocations, makes_flat_parameters(ctx, call)
    made = [outcome for each in several for outcome in _outcomes(each, was_flat)]
    made += _rebound(several)
    if was_flat and any(map(_has_optimizer, several)):
        said = finding(CODE, Level.REVIEW, ctx, call, _TRAINED_NOTHING, _EXPECT)
        made.append((ctx, Fix(findings=[said])))  # of the wrap, however many scripts build an optimizer
    own = [outcome for where, outcome in made if where.path == ctx.path]
    return Fix(
        edits=[edit for outcome in own for edit in outcome.edits],
        findings=[each for outcome in own for each in outcome.findings],
        imports=[item for outcome in own for item in outcome.imports],
        elsewhere=[(where, outcome) for where, outcome in made if where.path != ctx.path],
    )


_TRAINED_NOTHING = (
    "FSDP1 without use_orig_params=True never trained what optimizers from before the wrap hold; FSDP2 does"
)
_EXPECT = "expect the weights to change; where they shall not, take them from the optimizer"
_MOVED = "what is built from the parameters before the wrap moves below it"
_REBOUND = "the optimizer that is built before the wrap gets the sharded parameters from rebind_optimizer"
_LISTS = f"{_REBOUND}; a list of the parameters from before the wrap is used below it, and they are not those trained"


_KEPT = "FSDP1 without use_orig_params=True never trained those from before, and now they are those that are trained"


def _has_optimizer(relocation: Relocation) -> bool:
    return any(each.is_optimizer for each in relocation.early.holders)


def _outcomes(relocation: Relocation, was_flat: bool) -> Iterator[tuple[Context, Fix]]:
    """What becomes of each file: the optimizer can be built in one, and rebound in another."""
    early, moved = relocation.early, relocation.moving
    level, message, hint = Level.REWRITTEN, _REBOUND if moved is None else _MOVED, ""
    counted = all(is_only_counted(each.call, early.file) for each in early.holders)
    if moved is not None:
        yield early.file, Fix(edits=moved.edits())
    if was_flat and not counted and not _has_optimizer(relocation):
        level, message, hint = Level.MANUAL, f"{message}; {_KEPT}", "say whether that is meant"
    elif moved is None and keeps_lists(early):
        level, message, hint = Level.MANUAL, _LISTS, "collect them below the wrap"
    yield early.file, left(CODE, level, early.file, early.holders[0].call, message, hint)


def _rebound(several: Iterable[Relocation]) -> Iterator[tuple[Context, Fix]]:
    """Each optimizer once, on however many ways it comes to the wrap."""
    once: dict[tuple[cst.CSTNode, str], tuple[cst.Call, Rebinding]] = {}
    for relocation in several:
        for site, each in relocation.rebinding or ():
            key = (each.line, each.optimizer)
            _, other = once.get(key, (site, each))
            once[key] = (site, replace(each, may_be_none=each.may_be_none or other.may_be_none))
    for site, each in once.values():
        edits, item = each.edits(site)
        yield each.file, Fix(edits=edits, imports=[item])


RULE = Rule(CODE, "optimizer-before-sharding", __doc__, nodes=(cst.Call,), fix=fix)
