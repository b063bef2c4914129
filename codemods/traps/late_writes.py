"""**What it does.** Finds weights that are initialised, and modules that are replaced, in a model that is wrapped
already.

**Why.** Under FSDP2 each rank writes into DTensors: a random initialisation is another one than on a whole tensor.
A module that is put in afterwards belongs to no unit: its parameters are never synchronised, without an error.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    model = FSDP(net)
    model.head = torch.nn.Linear(8, 2)
    return model
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    net.head = torch.nn.Linear(8, 2)
    return FSDP(net)
```

## Fix safety

Nothing is changed: it is reported, for you to decide.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.vocabulary import Check, File, Finding, Holds, Level, finding

CODE = "FM416"


def find(file: File) -> Iterator[Finding]:
    """One finding for each write."""
    for call in file.nodes(cst.Call):
        if (file.dotted(call.func) or "").startswith("torch.nn.init.") and call.args:
            if _is_of_model(file, call.args[0].value):
                message = "weights of a sharded model are initialised: random values differ from those of whole tensors"
                yield finding(CODE, Level.MANUAL, file, call, message, "initialise before the model is sharded")
    for node in file.nodes(cst.Assign):
        made = file.dotted(node.value.func) if isinstance(node.value, cst.Call) else None
        target = node.targets[0].target
        if (made or "").startswith("torch.nn.") and isinstance(target, cst.Attribute):
            if _is_of_model(file, target.value):
                message = "a module that is put into a sharded model belongs to no unit and is never synchronised"
                yield finding(CODE, Level.MANUAL, file, node, message, "put it in before the model is sharded")


def _is_of_model(file: File, node: cst.BaseExpression) -> bool:
    while True:
        if Holds.FSDP in file.holds(node):
            return True
        if not isinstance(node, (cst.Attribute, cst.Subscript)):
            return False
        node = node.value


CHECK = Check(CODE, "write-after-sharding", __doc__, words=("init", "weight", "data", "nn"), find=find)
