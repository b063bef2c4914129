"""**What it does.** Finds a wrapped model that runs, in an evaluation or a sanity check, before its optimizer is built.

**Why.** After a forward without a backward the root's parameters are still gathered: `model.parameters()` are temporary
full tensors then, and an optimizer of them trains nothing, without an error. The blocks moved by 0.05, the root's
parameters by 0.0, measured on torch 2.13. FSDP1 with `use_orig_params=True` trained all of them.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(net, batch):
    model = FSDP(net, use_orig_params=True)
    with torch.no_grad():
        print("before training", model(batch).mean())
    optimizer = torch.optim.AdamW(model.parameters())
    return model, optimizer
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(net, batch):
    model = FSDP(net, use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters())
    with torch.no_grad():
        print("before training", model(batch).mean())
    return model, optimizer
```

## Fix safety

Nothing is changed: whatever stands between the two may be needed in that order. `model.reshard()` behind the forward
does the same; with `reshard_after_forward=False` it is needed on every `FSDPModule`, because it does not recurse.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.FSDPModule.reshard
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from codemods.vocabulary import Check, File, Finding, Holds, Level, finding

CODE = "FM120"

_OPTIMIZER = re.compile(r"(^|\.)(\w*optim\w*|Adam\w*|SGD|Lion|Adagrad|RMSprop|LAMB|Adafactor)$", re.IGNORECASE)
_GATHERS_NO_MORE = frozenset({"backward", "reshard", "reshard_all"})


def find(file: File) -> Iterator[Finding]:
    """One finding for each forward that an optimizer of the same model follows in the same function."""
    for optimizer in file.nodes(cst.Call):
        model = _trained(optimizer, file)
        if model is None or Holds.FSDP not in file.holds(model):
            continue
        forward = _forward_before(optimizer, model, file)
        if forward is not None:
            yield finding(
                CODE,
                Level.MANUAL,
                file,
                forward,
                "the model runs before its optimizer is built: its parameters are gathered then, and the optimizer"
                " would train copies of the root's",
                "build the optimizer first, or call model.reshard() in between",
            )


def _trained(call: cst.Call, file: File) -> cst.BaseExpression | None:
    """The model of `AdamW(model.parameters(), …)`."""
    if not _OPTIMIZER.search(file.code(call.func)) or not call.args:
        return None
    for node in _inside(call.args[0].value):
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            if node.func.attr.value in {"parameters", "named_parameters"}:
                return node.func.value
    return None


def _inside(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield node
    for child in node.children:
        yield from _inside(child)


def _forward_before(optimizer: cst.Call, model: cst.BaseExpression, file: File) -> cst.Call | None:
    """The last call of the model above the optimizer, unless its parameters are sharded again in between."""
    found, here, name = None, file.span(optimizer)[0], file.code(model)
    # In the order in which they end, and so run: `model(x).sum().backward()` ends with its backward.
    for call in sorted(file.calls(file.scope(optimizer)), key=lambda call: file.span(call)[1]):
        if file.span(call)[1] > here:
            break
        if file.code(call.func) == name and Holds.FSDP in file.holds(call.func):
            found = call
        elif _last_name(call.func) in _GATHERS_NO_MORE:
            found = None
    return found


def _last_name(callee: cst.BaseExpression) -> str:
    if isinstance(callee, cst.Attribute):
        return callee.attr.value
    return callee.value if isinstance(callee, cst.Name) else ""


CHECK = Check(CODE, "forward-before-optimizer", __doc__, words=("parameters", "named_parameters"), find=find)
