"""**What it does.** Names every use of FSDP1 that no other rule rewrote, and stops the program before those that
an FSDP2 model would silently ignore.

**Why.** `FSDP.summon_full_params`, `FSDP.state_dict_type`, `FSDP.set_state_dict_type` and `FSDP.fsdp_modules` do
nothing on an FSDP2 model and raise nothing: left in place, a run goes on with wrong results.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def roots(net):
    model = FSDP(net)
    return FSDP.fsdp_modules(model, root_only=True)
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard


def roots(net):
    model = fully_shard(net)
    return [model]
```

## Fix safety

Nothing is guessed: the line stays, and where leaving it would be silent a `raise NotImplementedError` stands
before it.

## References

- https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import libcst as cst

from codemods.layout import stop
from codemods.tables.leftovers import (
    APPLY,
    BY_NAME,
    CLASS,
    INTERNALS,
    LEFTOVERS,
    NAMED,
    ON_MODEL,
    OTHER,
    PRIVATE,
    STATIC,
    Leftover,
)
from codemods.tables.names import SILENT_ON_FSDP2, WRAPPER
from codemods.vocabulary import File, Holds, Level, Outcome, finding

CODE = "FM100"


def report(node: cst.BaseExpression, name: str, file: File, migrated: bool) -> Outcome:
    """The finding for one leftover; `migrated` says whether the program's models are FSDP2 now."""
    row = _row(node, name, file)
    # `type(model) is FSDP` would be False for ever.
    compared = isinstance(file.parent(node), (cst.ComparisonTarget, cst.Comparison))
    silent = name in SILENT_ON_FSDP2 or (name == WRAPPER and compared)
    if row is OTHER:
        row = replace(row, message=f"{name} is FSDP1's, and no FSDP2 is known that replaces it")
    edits = stop(file, node, row.code, row.message) if migrated and silent else []
    return Outcome(edits=edits, findings=[finding(row.code, Level.MANUAL, file, node, row.message, row.cure)])


def internals(file: File, attributes: Sequence[cst.Attribute], calls: Sequence[cst.Call]) -> Outcome:
    """Attributes of FSDP1's own objects, and its methods looked up by name, in a file that deals with FSDP1."""
    found = []
    for attribute in attributes:
        owner = attribute.value
        inner = isinstance(owner, cst.Attribute) and owner.attr.value in INTERNALS
        if attribute.attr.value in INTERNALS and not inner:
            found.append(finding(PRIVATE.code, Level.MANUAL, file, attribute, PRIVATE.message, PRIVATE.cure))
        row = _method_row(attribute, file)
        if row is not None:
            found.append(finding(row.code, Level.MANUAL, file, attribute, row.message, row.cure))
    for call in calls:
        if _looks_up(call, file):
            found.append(finding(NAMED.code, Level.MANUAL, file, call, NAMED.message, NAMED.cure))
    return Outcome(findings=found)


def _method_row(attribute: cst.Attribute, file: File) -> Leftover | None:
    """`model.summon_full_params(model)`: the wrapper's static methods are called on the model too."""
    name = attribute.attr.value
    call = file.parent(attribute)
    if name not in STATIC | {"apply"} or not isinstance(call, cst.Call) or call.func is not attribute:
        return None
    if file.fsdp1(attribute) is not None or Holds.FSDP not in file.holds(attribute.value):
        return None
    return APPLY if name == "apply" else ON_MODEL


def _looks_up(call: cst.Call, file: File) -> bool:
    """`getattr(model, "no_sync", …)` on a model that can be wrapped."""
    if not isinstance(call.func, cst.Name) or call.func.value not in {"getattr", "hasattr"} or len(call.args) < 2:
        return False
    name = call.args[1].value
    if not isinstance(name, cst.SimpleString) or name.evaluated_value not in BY_NAME:
        return False
    return bool(file.holds(call.args[0].value) & {Holds.FSDP, Holds.UNKNOWN})


def _row(node: cst.BaseExpression, name: str, file: File) -> Leftover:
    if name in LEFTOVERS:
        return LEFTOVERS[name]
    if name == WRAPPER:
        return CLASS
    if any(part.startswith("_") for part in name.split(".")):
        return PRIVATE
    return OTHER
