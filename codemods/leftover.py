"""**What it does.** Names every use of FSDP1 that no other rule rewrote, and stops the program before those that an FSDP2
model would silently ignore.

**Why.** `FSDP.summon_full_params`, `FSDP.state_dict_type`, `FSDP.set_state_dict_type` and `FSDP.fsdp_modules` do nothing on an
FSDP2 model and raise nothing: left in place, a run goes on with wrong results.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def average(net):
    model = FSDP(net)
    with FSDP.summon_full_params(model):
        return [p.mean() for p in model.parameters()]
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard


def average(net):
    model = fully_shard(net)
    return [p.full_tensor().mean() for p in model.parameters()]
```

## Fix safety

Nothing is guessed: the line stays, and where leaving it would be silent a `raise NotImplementedError` stands before it.

## References

- https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html
"""

from __future__ import annotations

import libcst as cst

from codemods.layout import stop
from codemods.tables.leftovers import CLASS, LEFTOVERS, OTHER, PRIVATE, SUBCLASS, Leftover
from codemods.tables.names import SILENT_ON_FSDP2, WRAPPER
from codemods.vocabulary import File, Level, Outcome, finding

CODE = "FM100"


def report(node: cst.BaseExpression, name: str, file: File, migrated: bool) -> Outcome:
    """The finding for one leftover; `migrated` says whether the program's models are FSDP2 now."""
    row = _row(node, name, file)
    edits = stop(file, node, row.code, row.message) if migrated and name in SILENT_ON_FSDP2 else []
    return Outcome(edits=edits, findings=[finding(row.code, Level.MANUAL, file, node, row.message, row.cure)])


def _row(node: cst.BaseExpression, name: str, file: File) -> Leftover:
    if name in LEFTOVERS:
        return LEFTOVERS[name]
    if name == WRAPPER:
        holder = file.parent(node)
        is_base = isinstance(holder, cst.Arg) and isinstance(file.parent(holder), cst.ClassDef)
        return SUBCLASS if is_base else CLASS
    if any(part.startswith("_") for part in name.split(".")):
        return PRIVATE
    return OTHER
