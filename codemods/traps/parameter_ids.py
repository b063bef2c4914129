"""**What it does.** Finds `optimizer.load_state_dict(torch.load(...))` for the optimizer of a wrapped model.

**Why.** FSDP1's optimizer had this rank's flat slices, under the ids of its parameters. An FSDP2 optimizer cannot go on
from them: it raises when it loads them, or at its first step (torch 2.13).

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def resume(net, path):
    model = FSDP(net)
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.load_state_dict(torch.load(path))
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def resume(net, path):
    model = FSDP(net)
    optimizer = torch.optim.AdamW(model.parameters())
    state = FSDP.optim_state_dict_to_load(model, optimizer, torch.load(path))
    optimizer.load_state_dict(state)
```

## Fix safety

Nothing is changed. Save `FSDP.optim_state_dict(model, optimizer)` with the FSDP1 program before you migrate a run that
has to go on: such a file has the names of parameters for keys, and the rewritten program reads it.

## References

- https://docs.pytorch.org/docs/stable/fsdp.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.reading.dcp_format import load_of
from codemods.vocabulary import Check, File, Finding, Holds, Level, finding

CODE = "FM307"


def find(file: File) -> Iterator[Finding]:
    """One finding for each load of a file into an optimizer that holds a wrapped model's parameters."""
    for call in file.nodes(cst.Call):
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "load_state_dict" or not call.args:
            continue
        if load_of(call.args[0].value, file) is not None and _is_for_wrapped_model(call.func.value, file):
            yield finding(
                CODE,
                Level.MANUAL,
                file,
                call,
                "an optimizer state by parameter ids: FSDP1 saved flat slices, which FSDP2 cannot go on from",
                "save FSDP.optim_state_dict(model, optimizer) with the FSDP1 program first, and load that",
            )


def _is_for_wrapped_model(optimizer: cst.BaseExpression, file: File) -> bool:
    for origin in file.origins(optimizer):
        made = origin.node
        if isinstance(made, cst.Call) and (origin.file.dotted(made.func) or "").startswith("torch.optim."):
            parameters = made.args[0].value if made.args else None
            if isinstance(parameters, cst.Call) and isinstance(parameters.func, cst.Attribute):
                return Holds.FSDP in origin.file.holds(parameters.func.value)
    return False


CHECK = Check(CODE, "parameter-ids", __doc__, words=("load_state_dict",), find=find)
