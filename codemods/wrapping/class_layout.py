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
that comes from them can have some, so that such a class is reported (FM415).

## References

- https://docs.python.org/3/library/abc.html
"""

from __future__ import annotations

import libcst as cst

from codemods.reading.class_layout import behind_the_module, is_refused, sharded_classes
from codemods.reading.manual import is_constructor
from codemods.vocabulary import Edit, File, Level, Outcome, Rule, Way, finding

CODE = "FM425"

Match = list[tuple[File, cst.ClassDef, Edit]]


def match(node: cst.CSTNode, file: File) -> Match | None:
    """The classes that a constructor call shards, and that have to change for it."""
    if not isinstance(node, cst.Call) or not is_constructor(file, node) or file.way(node) is Way.LEFT:
        return None
    found: dict[cst.ClassDef, tuple[File, Edit]] = {}
    for where, owner in sharded_classes(file, node):
        edit = behind_the_module(where, owner) if is_refused(where, owner) and not where.is_kept else None
        if edit is not None:
            found[owner] = where, edit
    return [(where, owner, edit) for owner, (where, edit) in found.items()] or None


def edit(found: Match, file: File) -> Outcome:
    message = "a base without methods moves behind nn.Module: fully_shard cannot change the class of such an object"
    return Outcome(
        elsewhere=[
            (where, Outcome([change], [finding(CODE, Level.REWRITTEN, where, owner.name, message)]))
            for where, owner, change in found
        ]
    )


RULE: Rule[Match] = Rule(CODE, "class-layout", __doc__, nodes=(cst.Call,), methods=(), match=match, edit=edit)
