"""**What it does.** Finds an optimizer with `fused=True` or `foreach=True` for all parameters of a model that ignores
some of them.

**Why.** Ignored parameters stay plain tensors, and the others are DTensors. A fused or foreach step takes all of one
group together, and raises for such a mixture (AdamW and SGD, torch 2.13). FSDP1's parameters were all plain tensors.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    model = FSDP(net, ignored_modules=[net.embed])
    return torch.optim.AdamW(model.parameters(), fused=True)
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    model = FSDP(net, ignored_modules=[net.embed])
    ignored = set(net.embed.parameters())
    others = [p for p in model.parameters() if p not in ignored]
    return torch.optim.AdamW([{"params": others}, {"params": list(ignored)}], fused=True)
```

## Fix safety

Nothing is changed: the groups of an optimizer are in its checkpoints too.

## References

- https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Finding, Level, finding
from codemods.plan import PlannedContext
from codemods.reading.code.shapes import called_on
from codemods.reading.optimizers.makers import is_optimizer
from codemods.reading.wraps.left_out import ignores_parameters

CODE = "FM124"

_MESSAGE = "one fused or foreach step for sharded and ignored parameters raises: DTensors and plain tensors mix"
_HINT = "put the ignored parameters into a group of their own"


def find(ctx: PlannedContext) -> Iterator[Finding]:
    """One finding for each optimizer."""
    for call in ctx.nodes(cst.Call):
        if not is_optimizer(ctx, call) or not any(_is_joint(argument) for argument in call.args):
            continue
        given = [argument.value for argument in call.args[:1]]
        if any(_parameters_of_ignoring(ctx, value) for value in given):
            yield finding(CODE, Level.MANUAL, ctx, call, _MESSAGE, _HINT)


def _is_joint(argument: cst.Arg) -> bool:
    named = argument.keyword is not None and argument.keyword.value in {"foreach", "fused"}
    return named and not (isinstance(argument.value, cst.Name) and argument.value.value in {"False", "None"})


def _parameters_of_ignoring(ctx: PlannedContext, value: cst.BaseExpression) -> bool:
    """`model.parameters()` of a model whose constructor call ignores something, or a variable that holds it."""
    for origin in ctx.origins(value):
        made = origin.node if isinstance(origin.node, cst.Call) else None
        model = called_on(made, "parameters") if made is not None else None
        if model is not None and ignores_parameters(origin.file, model, ctx.plan):
            return True
    return False


CHECK = Check(CODE, "fused-optimizer-of-ignored", __doc__, words=("foreach", "fused"), find=find)
