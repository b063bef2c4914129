"""**What it does.** Finds `copy.deepcopy(model.module)` and `torch.save(model.module)` of a wrapped model, and averages
that copy it first: `AveragedModel(model.module)`.

**Why.** A sharded module cannot be copied (`AssertionError`), and its class, which is made at run time, cannot be
pickled. FSDP1's wrapper could not either (`TypeError`, with and without `use_orig_params` or nested units, measured on
torch 2.13), so that a program that runs never copies it, and nothing is said. The module inside of one that is a single
unit could be.

## Example

```python
import copy

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    model = FSDP(net)
    return model, copy.deepcopy(model.module)
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

from codemods.api import Check, Context, Finding, Level, ModelKind, Origin, finding
from codemods.reading.code.shapes import is_attribute
from codemods.reading.models.copies import copies
from codemods.reading.optimizers.prewrap.entering import returned_by
from codemods.reading.wrappers.inner_module import is_inner_module

CODE = "FM412"

_MESSAGE = "a sharded module can be neither copied nor pickled"
_HINT = "copy the model before it is sharded and shard the copy too; save its state dict"

_INNER = frozenset({"module", "_fsdp_wrapped_module"})


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each copy."""
    for call in ctx.nodes(cst.Call):
        if not copies(ctx, call) and ctx.dotted(call.func) != "torch.save":
            continue
        given = call.args[0].value if call.args else None
        if given is not None and _is_inner(given, call, ctx) and not _can_be_data(given, ctx):
            yield finding(CODE, Level.MANUAL, ctx, call, _MESSAGE, _HINT)


def _is_inner(given: cst.BaseExpression, call: cst.Call, ctx: Context) -> bool:
    """Whether it can be the module inside of FSDP1's wrapper, which is the FSDP2 model itself."""
    if is_inner_module(given, call, ctx):
        return True
    held = [(ctx, given), *((ctx.bound(given) or ()) if isinstance(given, cst.Name) else ())]
    if isinstance(given, cst.Call) and ModelKind.FSDP in ctx.kinds(given):
        held += [each for origin in ctx.origins(given.func) for each in _returned(origin)]
    inner = ((where, node.value) for where, node in held if is_attribute(node, *_INNER))
    return any({ModelKind.FSDP, ModelKind.UNKNOWN} & where.kinds(model) for where, model in inner)


def _returned(function: Origin) -> Iterator[tuple[Context, cst.BaseExpression]]:
    """What a function of the program returns: `model.module if hasattr(model, "module") else model`."""
    if isinstance(function.node, cst.FunctionDef):
        for returned in returned_by(function.file, function.node):
            yield from ((function.file, each) for each in _ways(returned))


def _ways(value: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    if isinstance(value, cst.IfExp):
        yield from (*_ways(value.body), *_ways(value.orelse))
    else:
        yield value


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
