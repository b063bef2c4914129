"""**What it does.** Finds a library's object that saves and loads a wrapped model by itself: fvcore's `Checkpointer`.

**Why.** Its `save` writes `model.state_dict()` on every rank, to one file: FSDP1 gave it whole tensors, FSDP2 each
rank's shards, of which one rank's are left. Its `load` puts the file's plain tensors into the model, and raises for
DTensors (fvcore 0.1.5, torch 2.13).

## Example

```python
from fvcore.common.checkpoint import Checkpointer
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(net, path):
    model = FSDP(net)
    checkpointer = Checkpointer(model, path)
    checkpointer.save("last")
```

## Use instead

```python
import os

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(net, path):
    model = FSDP(net)
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    if dist.get_rank() == 0:
        torch.save({"model": state}, os.path.join(path, "last.pth"))
```

## Fix safety

Nothing is changed. Where the library's own `save` would write shards, the program stops where the object is made. A
class of the program that has a `save` of its own is only told of the load; one whose ranks save their own parts
(LOCAL_STATE_DICT) loads them as they are, and one that loads in a FULL_STATE_DICT context is rewritten (FM301).

## References

- https://github.com/facebookresearch/fvcore/blob/main/fvcore/common/checkpoint.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, Raise, finding
from codemods.plan import PlannedContext
from codemods.reading.code.shapes import called_on, is_attribute, is_call_to

CODE = "FM315"

_NAME = "Checkpointer"
_CLASS = f"fvcore.common.checkpoint.{_NAME}"
_SAVES = f"fvcore's {_NAME} saves the model's state dict itself: each rank's shards, all into one file"
_SAVE_HINT = "save get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)) of all ranks on rank 0"
_LOADS = f"fvcore's {_NAME} loads plain tensors into the model, and raises for one that is sharded"
_LOAD_HINT = (
    "override _load_model(self, checkpoint): set_model_state_dict(self.model, checkpoint.pop('model'), "
    "options=StateDictOptions(full_state_dict=True, strict=False))"
)
_RANKS_PARTS = frozenset({"LOCAL_STATE_DICT", "SHARDED_STATE_DICT"})
_IN_CONTEXT = "FULL_STATE_DICT"


@dataclass(frozen=True)
class _Checkpointer:
    """The library's class, or one of the program's made from it."""

    node: cst.Call | cst.ClassDef
    """What to point at."""
    own: frozenset[str]
    """The methods of the program's class, the kinds of state dicts of which each rank has a part, and the full kind
    where it asks the library to load in its context.
    """
    made: Sequence[tuple[Context, cst.Call, cst.BaseExpression]]
    """The calls that make one for a sharded model, and the model."""

    @property
    def saves(self) -> bool:
        return "save" not in self.own

    @property
    def loads(self) -> bool:
        return self.own.isdisjoint({"_load_model", _IN_CONTEXT, *_RANKS_PARTS})


def find(ctx: PlannedContext) -> Iterator[Finding]:
    """One finding for each class, or for each call of the library's own."""
    for each in _checkpointers(ctx):
        if each.saves:
            yield finding(CODE, Level.MANUAL, ctx, each.node, _SAVES, _SAVE_HINT)
        elif each.loads:
            yield finding(CODE, Level.MANUAL, ctx, each.node, _LOADS, _LOAD_HINT)


def stops(ctx: PlannedContext) -> Iterator[tuple[Context, Raise]]:
    """What would save shards; a load raises by itself."""
    for each in _checkpointers(ctx):
        for where, call, model in each.made if each.saves else ():
            yield where, Raise(call, CODE, _SAVES, model)


def _checkpointers(ctx: PlannedContext) -> Iterator[_Checkpointer]:
    if not ctx.plan.migrates:
        return
    for call in ctx.nodes(cst.Call):
        if ctx.dotted(call.func) == _CLASS and (made := list(_of_sharded([(ctx, call)]))):
            yield _Checkpointer(call, frozenset(), made)
    for owner in ctx.nodes(cst.ClassDef):
        if any(ctx.dotted(base.value) == _CLASS for base in owner.bases):
            made = list(_of_sharded(ctx.called_as_named(owner)))
            if made:
                yield _Checkpointer(owner, frozenset(_named(owner, ctx)), made)


def _of_sharded(
    calls: Iterable[tuple[Context, cst.Call]],
) -> Iterator[tuple[Context, cst.Call, cst.BaseExpression]]:
    for where, call in calls:
        given = [a.value for a in call.args[:1] if a.keyword is None and not a.star]
        given += [a.value for a in call.args if a.keyword is not None and a.keyword.value == "model"]
        for model in given:
            if ModelKind.FSDP in where.kinds(model) or where.holds_parts(model):
                yield where, call, model


def _named(owner: cst.ClassDef, ctx: Context) -> Iterator[str]:
    yield from (each.name.value for each in owner.body.body if isinstance(each, cst.FunctionDef))
    read = (each.attr.value for each in ctx.inside(owner.body) if isinstance(each, cst.Attribute))
    yield from _RANKS_PARTS.intersection(read)
    if any(_loads_in_context(each, ctx) for each in ctx.inside(owner.body) if isinstance(each, cst.With)):
        yield _IN_CONTEXT


def _loads_in_context(block: cst.With, ctx: Context) -> bool:
    """`with FSDP.state_dict_type(self.model, StateDictType.FULL_STATE_DICT): super().load(path)`."""
    is_full = any(is_attribute(each, _IN_CONTEXT) for item in block.items for each in ctx.inside(item))
    return is_full and any(is_call_to(called_on(each, "load"), "super") for each in ctx.inside(block.body))


CHECK = Check(CODE, "library-checkpointer", __doc__, words=(_NAME,), find=find, stops=stops)
