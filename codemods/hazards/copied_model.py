"""**What it does.** Finds `copy.deepcopy(model)` and `torch.save(model)` of a wrapped model, and averages of it that
copy it first: `AveragedModel(model)`.

**Why.** A sharded module cannot be copied (`AssertionError`), and its class, which is made at run time, cannot be
pickled.

## Example

```python
import copy

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    model = FSDP(net)
    return model, copy.deepcopy(model)
```

## Use instead

```python
import copy

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    average = FSDP(copy.deepcopy(net))
    return FSDP(net), average
```

## Fix safety

Nothing is changed: it is reported, for you to decide. It raises when it is reached, so that nothing trains wrongly.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding

CODE = "FM412"

_COPIES = frozenset({"copy.deepcopy", "torch.save", "torch.optim.swa_utils.AveragedModel"})
_AVERAGES = "timm.utils.ModelEma"


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each copy."""
    for call in ctx.nodes(cst.Call):
        made = ctx.dotted(call.func) or ""
        if made not in _COPIES and not made.startswith(_AVERAGES):
            continue
        given = call.args[0].value if call.args else None
        if given is not None and ModelKind.FSDP in ctx.kinds(given) and not _can_be_data(given, ctx):
            yield finding(
                CODE,
                Level.MANUAL,
                ctx,
                call,
                "a sharded module can be neither copied nor pickled",
                "copy the model before it is sharded and shard the copy too; save its state dict",
            )


def _can_be_data(value: cst.BaseExpression, ctx: Context) -> bool:
    """Whether it is seen to be a dict, a list or a number as well: no variable holds that and a model."""
    data = (cst.Dict, cst.List, cst.Set, cst.Tuple, cst.BaseNumber, cst.BaseString, cst.BaseComp)
    return isinstance(value, data) or any(isinstance(origin.node, data) for origin in ctx.origins(value))


CHECK = Check(
    CODE,
    "copy-of-sharded-model",
    __doc__,
    words=("deepcopy", "save", "AveragedModel", "ModelEma", "ModelEmaV2", "ModelEmaV3"),
    find=find,
)
