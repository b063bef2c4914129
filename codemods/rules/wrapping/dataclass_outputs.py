"""**What it does.** Registers a dataclass with pytree where `forward` of a sharded class returns one, and so a class of
dicts.

**Why.** Before torch 2.12 `fully_shard` finds the tensors of an output through pytree, for which a dataclass is a leaf,
and `class Output(dict)`, or of OrderedDict, is as well.
The hook is missing then that gathers the unit again for backward: `RuntimeError: … its data is not allocated yet`. In
a model that is one unit, nothing reduces its gradients either: no error, and no weight is ever updated. FSDP1 looked
into both by itself, as torch 2.12 does.

## Example

```python
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


@dataclass
class Output:
    logits: torch.Tensor


class Net(nn.Module):
    def forward(self, x):
        return Output(logits=x)


def build():
    return FSDP(Net())
```

## Use instead

```python
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


@dataclass
class Output:
    logits: torch.Tensor


torch.export.register_dataclass(Output)  # where fully_shard of torch < 2.12 looks for tensors


class Net(nn.Module):
    def forward(self, x):
        return Output(logits=x)


def build():
    return fully_shard(Net())
```

## Fix safety

Left alone where `--torch-version` is 2.12 or newer, where the program registers the class already, and where a base of
it is not the program's own: those of transformers and diffusers register what derives from them. What else asks pytree
for the tensors of such an object, as `torch.compile` does, sees them too. A class of dicts is registered by
`torch.utils._pytree.register_pytree_node`, which has no public name; it is asked about where it has an `__init__`.

## References

- https://docs.pytorch.org/docs/stable/export/api_reference.html#torch.export.register_dataclass
- Measured with torch 2.11 on a GPU, dicts with 2.8 on 2 ranks
- `FSDPState._register_pre_backward_hook` of the released packages 2.6 to 2.14
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Edit, Emission, Fix, Import, Level, Rule, left, rewritten
from codemods.plan import PlannedContext
from codemods.reading.models.class_layout import sharded_classes
from codemods.reading.models.dataclass_outputs import function_that_registers, registered_as, unregistered_outputs
from codemods.reading.wraps.manual import is_constructor
from codemods.tables.versions import LOOKS_INTO_DATACLASSES

CODE = "FM456"

_REGISTERED = "what forward returns is registered with pytree: fully_shard sees no tensors in it otherwise"
_KEPT = "fully_shard before torch 2.12 sees no tensors in this class, which a sharded module returns"
_COMMENT = "  # where fully_shard of torch < 2.12 looks for tensors"


def fix(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    """Of the dataclasses that the classes return which a constructor call shards."""
    if ctx.options.torch_version >= LOOKS_INTO_DATACLASSES:
        return None
    if not (is_constructor(ctx, call) or ctx.plan.is_drafted(call)) or ctx.plan.emission(call) is Emission.SKIP:
        return None
    outputs = unregistered_outputs(sharded_classes(ctx, call))
    return Fix(elsewhere=[(where, _outcome(where, owner, ctx)) for where, owner in outputs])


def _outcome(ctx: Context, owner: cst.ClassDef, asking: PlannedContext) -> Fix:
    torch = ctx.named(Import("torch"), owner)
    start, end = ctx.whole_lines(owner)
    margin = ctx.text[start : ctx.span(owner)[0]].split("@")[0]
    function, arguments = function_that_registers(ctx, owner), registered_as(ctx, owner)
    if arguments is None or asking.plan.is_kept(ctx.path) or margin.strip():
        hint = f"write torch.{function}({owner.name.value}, …) below the class, or use torch 2.12"
        return left(CODE, Level.MANUAL, ctx, owner.name, _KEPT, hint)
    gap, line = ctx.newline * (1 if margin else 2), f"{ctx.newline}{margin}"
    text = f"{torch.local}.{function}({arguments[0]}){_COMMENT}"
    if len(arguments) > 1:
        lines = "".join(f"{line}{ctx.indent}{each}," for each in arguments)
        text = f"{torch.local}.{function}({_COMMENT}{lines}{line})"
    return rewritten(CODE, ctx, owner.name, [Edit(end, end, f"{gap}{margin}{text}{ctx.newline}")], _REGISTERED, [torch])


RULE = Rule(CODE, "dataclass-outputs", __doc__, nodes=(cst.Call,), fix=fix)
