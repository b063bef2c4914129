"""**What it does.** Puts `reshard_all(model)` of the support module in front of statements that take a model's
parameters after an evaluation.

**Why.** After a forward without a backward, FSDP2 leaves the root's parameters whole: until the next backward or
`reshard()`, `model.parameters()` has temporary copies of them, without gradients. `model.zero_grad()` leaves the root's
gradients as they are then, an optimizer that is built there never updates 4 of 16 parameters, and what is written to
the copies is lost, all without an error (torch 2.13). FSDP1 had its own parameters there.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(net, batches):
    model = FSDP(net)
    with torch.no_grad():
        model(batches[0])
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in batches:
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
```

## Use instead

```python
import torch
from torch.distributed.fsdp import fully_shard

from fsdp2_support import reshard_all


def train(net, batches):
    model = fully_shard(net)
    with torch.no_grad():
        model(batches[0])
    reshard_all(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in batches:
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
```

## Fix safety

The same parameters as under FSDP1, and for a loop that writes to them better ones: FSDP1 went on with stale weights
of its root in the next forward, so that is reported. An evaluation is seen in the same function only, and for
`model.zero_grad()`, which mostly stands in a loop, supposed wherever the program has forwards without gradients.
Between a forward and its backward `model.zero_grad()` needs the same.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.FSDPModule.reshard
"""

from __future__ import annotations

import re

import libcst as cst

from codemods.reading.forwards import reads_after_forward
from codemods.reading.layout import insertion
from codemods.reading.unsynced import follows_step
from codemods.vocabulary import SUPPORT, File, Holds, Import, Level, Outcome, Rule, finding

CODE = "FM209"

_READERS = frozenset({"parameters", "named_parameters"})
_OPTIMIZER = re.compile(r"(^|\.)(\w*optim\w*|Adam\w*|SGD|Lion|Adagrad|RMSprop|LAMB|Adafactor)$", re.IGNORECASE)
_IN_PLACE = re.compile(r"\.(?!requires_grad_)[a-z]\w*_\(|\.data\s*[-+*/]?=(?!=)")


def match(node: cst.CSTNode, file: File) -> cst.Call | None:
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return None
    model, method = node.func.value, node.func.attr.value
    if method not in _READERS | {"zero_grad"} or not isinstance(model, (cst.Name, cst.Attribute)):
        return None
    if Holds.FSDP not in file.holds(model):
        return None
    calls = [file.code(outer.func) for outer in file.ancestors(node) if isinstance(outer, cst.Call)]
    trained = any(_OPTIMIZER.search(function) for function in calls)
    evaluates = file.mentions("no_grad", "inference_mode")
    if method == "zero_grad":
        seen = reads_after_forward(node, model, file, trained=True)
        return node if seen or (evaluates and not follows_step(node, file)) else None
    if not trained and not evaluates:
        return None
    after = reads_after_forward(node, model, file, trained)
    is_clipped = any("clip_grad" in function for function in calls)  # clipping has a rule of its own
    return node if after and not is_clipped else None


def edit(call: cst.Call, file: File) -> Outcome:
    model = file.code(cst.ensure_type(call.func, cst.Attribute).value)
    item = file.named(Import(SUPPORT, "reshard_all"), call)
    message = f"reshard_all(`{model}`) in front: after a forward without a backward the root's parameters are copies"
    level, cure = Level.REWRITTEN, ""
    if _writes(call, file):
        level = Level.MANUAL
        message += "; FSDP1 did not use what is written here in the next forward, and the losses differ for it"
        cure = "write in front of that forward, where both train alike"
    return Outcome(
        [insertion(file, call, f"{item.local}({model})")], [finding(CODE, level, file, call, message, cure)], [item]
    )


def _writes(call: cst.Call, file: File) -> bool:
    """Whether the loop over the parameters writes to them in place."""
    inner: cst.CSTNode = call
    for outer in file.ancestors(call):
        if isinstance(outer, cst.For) and inner is outer.iter:
            return bool(_IN_PLACE.search(file.code(outer.body)))
        inner = outer
    return False


RULE: Rule[cst.Call] = Rule(
    CODE, "parameters-after-forward", __doc__, nodes=(cst.Call,), methods=("zero_grad",), match=match, edit=edit
)
