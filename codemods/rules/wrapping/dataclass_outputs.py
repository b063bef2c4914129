"""**What it does.** Registers a dataclass with pytree where `forward` of a sharded class returns one.

**Why.** Before torch 2.12 `fully_shard` finds the tensors of an output through pytree, for which a dataclass is a leaf.
The hook is missing then that gathers the unit again for backward: `RuntimeError: … its data is not allocated yet`. In
a model that is one unit, nothing reduces its gradients either: no error, and no weight is ever updated. FSDP1 looked
into dataclasses by itself, as torch 2.12 does.

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
for the tensors of such an object, as `torch.compile` does, sees them too.

## References

- https://docs.pytorch.org/docs/stable/export/api_reference.html#torch.export.register_dataclass
- Measured with torch 2.11 on a GPU; `FSDPState._register_pre_backward_hook` of the released packages 2.6 to 2.14
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context, Edit, Emission, Fix, Import, Level, Rule, left, rewritten
from codemods.plan import PlannedContext
from codemods.reading.class_layout import sharded_classes, with_bases
from codemods.reading.manual import is_constructor
from codemods.reading.words import last_name
from codemods.tables.versions import LOOKS_INTO_DATACLASSES

CODE = "FM456"

_REGISTERED = "a dataclass that forward returns is registered with pytree: fully_shard sees no tensors in it otherwise"
_KEPT = "fully_shard before torch 2.12 sees no tensors in this dataclass, which a sharded module returns"
_REGISTERS = frozenset({"register_dataclass", "register_pytree_node", "_register_pytree_node"})
_WITHOUT_FIELDS = frozenset({"object", "abc.ABC", "typing.Generic"})


def fix(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    """Of the dataclasses that the classes return which a constructor call shards."""
    if ctx.options.torch_version >= LOOKS_INTO_DATACLASSES:
        return None
    if not (is_constructor(ctx, call) or ctx.plan.is_drafted(call)) or ctx.plan.emission(call) is Emission.SKIP:
        return None
    returned = dict.fromkeys(
        each for where, owner in sharded_classes(ctx, call) for each in _returned_classes(where, owner)
    )
    unknown = [(where, owner) for where, owner in returned if _is_unknown_to_pytree(where, owner)]
    return Fix(elsewhere=[(where, _outcome(where, owner, ctx)) for where, owner in unknown])


def _returned_classes(ctx: Context, owner: cst.ClassDef) -> Iterator[tuple[Context, cst.ClassDef]]:
    """Of the program's objects that `forward` makes and returns, alone or in a tuple."""
    forwards = [node for node in owner.body.body if isinstance(node, cst.FunctionDef) and node.name.value == "forward"]
    for forward in forwards:
        for node in ctx.inside(forward.body):
            if isinstance(node, cst.Return) and node.value is not None and ctx.scope(node) is forward:
                elements = node.value.elements if isinstance(node.value, cst.Tuple) else ()
                for value in [each.value for each in elements] or [node.value]:
                    yield from _made_of(ctx, value)


def _made_of(ctx: Context, value: cst.BaseExpression) -> Iterator[tuple[Context, cst.ClassDef]]:
    for origin in ctx.origins(value):
        if isinstance(origin.node, cst.Call):
            for made in origin.file.origins(origin.node.func):
                if isinstance(made.node, cst.ClassDef):
                    yield made.file, made.node


def _is_unknown_to_pytree(ctx: Context, owner: cst.ClassDef) -> bool:
    if not _is_dataclass(ctx, owner) or any(_is_foreign(where, each) for where, each in with_bases(ctx, owner)):
        return False
    uses = ((where, where.parent(use)) for where, use in ctx.references_to(owner))
    calls = (where.parent(use) for where, use in uses if isinstance(use, cst.Arg))
    return not any(isinstance(call, cst.Call) and last_name(call.func) in _REGISTERS for call in calls)


def _is_dataclass(ctx: Context, owner: cst.ClassDef) -> bool:
    marks = (each.decorator for each in owner.decorators)
    names = (ctx.dotted(mark.func if isinstance(mark, cst.Call) else mark) for mark in marks)
    return "dataclasses.dataclass" in names


def _is_foreign(ctx: Context, owner: cst.ClassDef) -> bool:
    """Whether one of its bases is a class that the program does not define."""
    for base in owner.bases:
        name = base.value.value if isinstance(base.value, cst.Subscript) else base.value
        if ctx.dotted(name) in _WITHOUT_FIELDS or ctx.code(name) in _WITHOUT_FIELDS:
            continue
        if not any(isinstance(origin.node, cst.ClassDef) for origin in ctx.origins(name)):
            return True
    return False


def _outcome(ctx: Context, owner: cst.ClassDef, asking: PlannedContext) -> Fix:
    torch = ctx.named(Import("torch"), owner)
    start, end = ctx.whole_lines(owner)
    margin = ctx.text[start : ctx.span(owner)[0]].split("@")[0]
    if asking.plan.is_kept(ctx.path) or margin.strip():
        hint = f"write torch.export.register_dataclass({owner.name.value}) below the class, or use torch 2.12"
        return left(CODE, Level.MANUAL, ctx, owner.name, _KEPT, hint)
    gap = ctx.newline * (1 if margin else 2)
    line = f"{torch.local}.export.register_dataclass({owner.name.value})"
    comment = "  # where fully_shard of torch < 2.12 looks for tensors"
    text = f"{gap}{margin}{line}{comment}{ctx.newline}"
    return rewritten(CODE, ctx, owner.name, [Edit(end, end, text)], _REGISTERED, [torch])


RULE = Rule(CODE, "dataclass-outputs", __doc__, nodes=(cst.Call,), fix=fix)
