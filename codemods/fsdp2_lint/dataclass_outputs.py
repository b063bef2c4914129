"""**What it does.** Finds a dataclass, or a class of dicts, that `forward` of a sharded module returns, and that pytree
does not know.

**Why.** Before torch 2.12 `fully_shard` finds the tensors of an output through pytree, for which such an object is a
leaf. A unit is not gathered again for its backward then: `RuntimeError: … its data is not allocated yet`. In a model
that is one unit nothing reduces the gradients either: no error, and no weight is ever updated.

## Example

```python
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


@dataclass
class Output:
    logits: torch.Tensor


class Net(nn.Module):
    def forward(self, x):
        return Output(logits=x)


model = fully_shard(Net())
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


torch.export.register_dataclass(Output)


class Net(nn.Module):
    def forward(self, x):
        return Output(logits=x)


model = fully_shard(Net())
```

## Fix safety

Nothing is changed; `rewrite` registers the dataclasses of FSDP1's units (FM456). Not looked for where `--torch-version`
is 2.12 or newer.

## References

- https://docs.pytorch.org/docs/stable/export/api_reference.html#torch.export.register_dataclass
- https://github.com/NVIDIA-NeMo/Speech/pull/16141: weights that never changed in real runs
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.models.class_layout import model_classes
from codemods.reading.models.dataclass_outputs import function_that_registers, unregistered_outputs
from codemods.reading.own_fsdp2.shardings import WORDS, is_fully_shard
from codemods.tables.versions import LOOKS_INTO_DATACLASSES

CODE = "FM512"

_UNSEEN = "fully_shard before torch 2.12 sees no tensors in what forward returns"
_REGISTER = "write {} below the {}; --torch-version 2.12 says that it is not needed"
_NAMED = 3
"""How many classes a hint names: a library's loop over models may shard any of hundreds."""


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each call that shards a module which returns some; each class at the first of them."""
    if ctx.options.torch_version >= LOOKS_INTO_DATACLASSES:
        return
    told: set[cst.ClassDef] = set()
    for call in (node for node in ctx.nodes(cst.Call) if is_fully_shard(ctx, node.func)):
        new = [each for each in unregistered_outputs(model_classes(ctx, call)) if each[1] not in told]
        told |= {owner for _, owner in new}
        if new:
            written = [f"torch.{function_that_registers(*each)}({each[1].name.value})" for each in new[:_NAMED]]
            more = [f"the same of {len(new) - _NAMED} others"] if len(new) > _NAMED else []
            hint = _REGISTER.format(" and ".join([*written, *more]), "classes" if new[1:] else "class")
            yield finding(CODE, Level.REVIEW, ctx, call, _UNSEEN, hint)


CHECK = Check(CODE, "unregistered-output", __doc__, words=WORDS, find=find)
