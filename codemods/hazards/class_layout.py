"""**What it does.** Finds model classes whose first base is `ABC`, `Generic` or `Protocol`, or a class that comes from
one of these, and that cannot be changed (FM425 changes the others). Those that are not seen to be sharded are for
review: should one be, the first start of the program says so.

**Why.** `fully_shard` changes the class of the object. With such a base first the layouts differ: `TypeError: __class__
assignment: 'FSDPM' object layout differs from 'M'`. FSDP1 took both orders.

## Example

```python
from abc import ABC

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(ABC, nn.Module):
    pass


def build(net):
    return FSDP(net)
```

## Use instead

```python
from abc import ABC

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(nn.Module, ABC):
    pass


def build(net):
    return FSDP(net)
```

## Fix safety

Nothing is changed. `ABC` has no methods, so that swapping the two bases changes nothing else; a base of your own that
has some would come behind `nn.Module` with them.

## References

- https://docs.python.org/3/library/abc.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Finding, Level, finding
from codemods.plan import PlannedContext
from codemods.reading.models.class_layout import behind_the_module, is_refused

CODE = "FM415"


def find(ctx: PlannedContext) -> Iterator[Finding]:
    """One finding for each class."""
    for node in ctx.nodes(cst.ClassDef):
        is_sharded = node in ctx.plan.sharded
        if not ctx.plan.migrates or not is_refused(ctx, node):
            continue
        if is_sharded and behind_the_module(ctx, node) is not None:
            continue
        message = "fully_shard cannot change the class of an object whose first base comes from ABC"
        hint = f"class {node.name.value}(nn.Module, ...): the module first"
        yield finding(CODE, Level.MANUAL if is_sharded else Level.REVIEW, ctx, node.name, message, hint)


CHECK = Check(CODE, "abstract-base-first", __doc__, words=("ABC", "Generic", "Protocol"), find=find)
