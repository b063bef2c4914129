"""**What it does.** Finds a program that wraps modules inside of a model, and never the model itself.

**Why.** Parameters outside of those modules are plain tensors that no one averages over the ranks. FSDP1 trained such a
model too, and its ranks drifted apart in the same way (0.30 after three steps, measured on torch 2.13): the rewritten
program does as before, which is rarely what was meant.

## Example

```python
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Model(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.blocks = FSDP(blocks)


def build(blocks):
    return Model(blocks)
```

## Use instead

```python
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Model(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.blocks = FSDP(blocks)


def build(blocks):
    return FSDP(Model(blocks))
```

## Fix safety

Nothing is changed: wrapping the model would train otherwise than before.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.code.enclosing import call_given, enclosing
from codemods.reading.code.shapes import is_call_to
from codemods.tables.names import WRAPPER

CODE = "FM123"

_MESSAGE = "only modules inside of the model are wrapped: its other parameters are each rank's own, as under FSDP1"
_HINT = "wrap the whole model last, unless that is what is meant"


def find(ctx: Context) -> Iterator[Finding]:
    """One finding, at the first of the calls, where all of the program's calls wrap a part of something."""
    calls = [call for call in ctx.nodes(cst.Call) if ctx.fsdp1(call.func) == WRAPPER]
    passed_on = any(ctx.fsdp1(argument.value) == WRAPPER for argument in ctx.nodes(cst.Arg))
    elsewhere = any(file.path != ctx.path for file, _ in ctx.wrapping.calls(ctx.path))
    if not calls or passed_on or elsewhere:
        return
    if all(_is_part(call, ctx) for call in calls):
        yield finding(CODE, Level.REVIEW, ctx, calls[0], _MESSAGE, _HINT)


def _is_part(call: cst.Call, ctx: Context) -> bool:
    """Whether the result is an item of something, or an attribute of a module."""
    for node in ctx.ancestors(call):
        if is_call_to(node, "setattr"):
            return True
        if isinstance(node, cst.Assign):
            uses = ctx.uses(node)
            stores = [node, *(ctx.parent(use) for use in uses)]
            put = ((call_given(use, ctx), use) for use in uses)
            return any(is_call_to(call, "setattr") and call.args[-1].value is use for call, use in put) or any(
                _stores_part(each, ctx) for each in stores if isinstance(each, cst.Assign)
            )
        if isinstance(node, cst.BaseStatement):
            return False
    return False


def _stores_part(statement: cst.Assign, ctx: Context) -> bool:
    target = statement.targets[0].target
    if isinstance(target, cst.Subscript):
        return _is_module_list(target.value)
    return isinstance(target, cst.Attribute) and ctx.code(target.value) == "self" and _in_module(target, ctx)


def _is_module_list(owner: cst.BaseExpression) -> bool:
    """`model.blocks[i]` is a part of a model; `models["actor"]` is a model."""
    return isinstance(owner, cst.Attribute) and not (isinstance(owner.value, cst.Name) and owner.value.value == "self")


def _in_module(target: cst.Attribute, ctx: Context) -> bool:
    """Whether this stands in a class that is a module."""
    owner = enclosing(ctx, target, cst.ClassDef)
    return owner is not None and any(
        (ctx.dotted(base.value) or ctx.code(base.value)).endswith("nn.Module") for base in owner.bases
    )


CHECK = Check(CODE, "unwrapped-root", __doc__, words=(WRAPPER,), find=find)
