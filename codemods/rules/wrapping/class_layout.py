"""**What it does.** Puts `ABC` and `Generic` behind `nn.Module` among the bases of a class that is seen to be
sharded.

**Why.** `fully_shard` changes the class of the object. With `ABC` first the layouts differ: `TypeError: __class__
assignment: 'FSDPNet' object layout differs from 'Net'`. FSDP1 took both orders.

## Example

```python
from abc import ABC

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(ABC, nn.Module):
    pass


def build():
    return FSDP(Net())
```

## Use instead

```python
from abc import ABC

from torch import nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module, ABC):
    pass


def build():
    return fully_shard(Net())
```

## Fix safety

`ABC` and `Generic` have no methods: where they stand among the bases makes no other difference. A base of your own
that comes from them can have some, so that such a class is reported (FM415). So is a class in a file that is kept as it
is, which FSDP1 takes in either order.

## References

- https://docs.python.org/3/library/abc.html
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Edit, Emission, Fix, Level, Rule, left, rewritten
from codemods.plan import PlannedContext
from codemods.reading.models.class_layout import behind_the_module, is_refused, sharded_classes
from codemods.reading.wraps.manual import is_constructor

CODE = "FM425"

_MOVES = "a base without methods moves behind nn.Module: fully_shard cannot change the class of such an object"
_KEPT = "fully_shard cannot change the class of an object whose first base comes from ABC, and this file is kept"


def fix(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    """Of the classes that a constructor call shards, and that have to change for it."""
    if not (is_constructor(ctx, call) or ctx.plan.is_drafted(call)) or ctx.plan.emission(call) is Emission.SKIP:
        return None
    made = []
    for where, owner in dict.fromkeys(sharded_classes(ctx, call)):
        if not is_refused(where, owner):
            continue
        is_kept = ctx.plan.is_kept(where.path)
        change = None if is_kept else behind_the_module(where, owner)
        if is_kept or change is not None:
            made.append((where, _outcome(where, owner, change)))
    return Fix(elsewhere=made)


def _outcome(ctx: Context, owner: cst.ClassDef, change: Edit | None) -> Fix:
    if change is not None:
        return rewritten(CODE, ctx, owner.name, [change], _MOVES)
    hint = f"class {owner.name.value}(nn.Module, ...): the module first, which FSDP1 takes too"
    return left(CODE, Level.MANUAL, ctx, owner.name, _KEPT, hint)


RULE = Rule(CODE, "class-layout", __doc__, nodes=(cst.Call,), fix=fix)
