"""**What it does.** Finds norms, means and sums of a wrapped model's parameters or gradients, and of what an optimizer
keeps for them (`optimizer.state[p]["exp_avg"]`), that are computed without gathering them.

**Why.** On a DTensor `p.norm().item()` is the value of this rank's piece, without an error: 1.02491 and 1.26580 on two
ranks where the norm is 1.62871 (torch 2.13). Under FSDP1 it was the value of this rank's flat shard, which was another
piece. Added to a loss it raises ("got mixed torch.Tensor and DTensor"). Some of these values (`std`, a norm to a power)
are reduced over the ranks: on one rank alone they wait for ever.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def log(net):
    model = FSDP(net)
    return {name: p.norm().item() for name, p in model.named_parameters()}
```

## Use instead

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def log(net):
    model = FSDP(net)
    with FSDP.summon_full_params(model, writeback=False):
        return {name: p.norm().item() for name, p in model.named_parameters()}
```

## Fix safety

Nothing is changed: a value that is only logged was this rank's before, and is this rank's now. In a loss, and under `if
rank == 0:`, where it can hang, it needs a person. After the rewrite `p.full_tensor()` gives the whole, on all ranks
together.

## References

- https://docs.pytorch.org/docs/stable/distributed.tensor.html#torch.distributed.tensor.DTensor.full_tensor
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.code.enclosing import enclosing
from codemods.reading.code.shapes import only_target
from codemods.reading.code.words import last_name
from codemods.reading.gradients.inside import added_up_by_hand, parameters_added_up
from codemods.reading.gradients.into_backward import reaches_backward
from codemods.reading.parameters.of_model import READERS, Reading, is_guarded, readings
from codemods.reading.parameters.plain_numbers import norms_of_pieces
from codemods.reading.parameters.reduced import reduction_of
from codemods.reading.parameters.sharded_values import is_sharded
from codemods.reading.parameters.stepped import own_optimizers, stepped

from .running import readings_while_running
from .state_values import KEPT, state_values

CODE = "FM420"

_WHOLE = frozenset({"full_tensor", "to_local"})
_NORMS = frozenset({"mean", "norm", "vector_norm"})

_LOGGED = "a value of this rank's piece of a parameter: FSDP2's pieces are other ones than FSDP1's"
_ON_ONE_RANK = "a value of a sharded parameter on one rank alone: on a DTensor it can wait for the others"
_IN_LOSS = "a value of sharded parameters goes into a loss, where FSDP1 added this rank's piece and FSDP2 raises"
_WHILE_RUNNING = (
    "a value of all of the model's parameters goes into what it returns: those of units are shards while it runs, of"
    " which FSDP1 added this rank's piece, and FSDP2 raises"
)
_KEPT = "a value of this rank's piece of what the optimizer keeps: a DTensor now, which raises beside plain tensors"
_HINT_OF_KEPT = "take .to_local() of it first, this rank's piece, or .full_tensor() on all ranks"
_TRAINED = "the optimizer computes with norms or means of whole parameters now, where FSDP1 gave it flat pieces"
_HINT = "take p.full_tensor() first, on all ranks, outside of any test for the rank"
_HINT_OF_LOSS = "give it to the optimizer (weight_decay for squares), or add what it adds to p.grad behind the backward"
_HINT_OF_RUNNING = (
    "where it is a DTensor, add that of p.to_local(); what is only there times 0, for DDP, has the same effect then"
)
_HINT_OF_TRAINED = (
    "compare the losses; with float() or .item() each rank goes by the piece that it has, and what changes such a value"
    " in place, `.mean().clamp_(…)`, raises"
)


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each loop, or named parameter."""
    running = {reading.node: reading for reading in readings_while_running(ctx)}
    for reading in running.values():
        values = _values(reading, ctx)
        if values and reaches_backward(values, ctx, returned=True):
            yield finding(CODE, Level.MANUAL, ctx, reading.node, _WHILE_RUNNING, _HINT_OF_RUNNING)
    for reading in (each for each in readings(ctx) if each.node not in running):
        values = _values(reading, ctx)
        if not values or _is_made_local(reading, ctx):
            continue
        if reaches_backward(values, ctx):
            yield finding(CODE, Level.MANUAL, ctx, reading.node, _IN_LOSS, _HINT_OF_LOSS)
        elif is_guarded(reading.node, ctx):
            yield finding(CODE, Level.MANUAL, ctx, reading.node, _ON_ONE_RANK, _HINT)
        else:
            yield finding(CODE, Level.REVIEW, ctx, reading.node, _LOGGED, _HINT)
    for read in state_values(ctx):
        if reduction_of(read, ctx) is not None:
            yield finding(CODE, Level.REVIEW, ctx, read, _KEPT, _HINT_OF_KEPT)
    seen = [reading for reading in stepped(ctx) if _values(reading, ctx)]
    for reading in seen:
        yield finding(CODE, Level.REVIEW, ctx, reading.node, _TRAINED, _HINT_OF_TRAINED)
    for owner in own_optimizers(ctx):
        inside = ctx.inside(owner)
        norms = [node for node in inside if isinstance(node, cst.Call) and last_name(node.func) in _NORMS]
        if norms and not any(reading.node in inside for reading in seen):  # of what it makes of its parameters
            yield finding(CODE, Level.REVIEW, ctx, norms[0], _TRAINED, _HINT_OF_TRAINED)


def _values(reading: Reading, ctx: Context) -> list[cst.Call]:
    """What is computed of the parameter, unless it is gathered first."""
    inside = ctx.inside(reading.body)
    if any(isinstance(node, cst.Attribute) and node.attr.value in _WHOLE for node in inside):
        return []
    found = (reduction_of(name, ctx) for param in reading.seen(ctx) for name in (param, *_other_names(param, ctx)))
    return [call for call in found if call is not None]


def _other_names(param: cst.BaseExpression, ctx: Context) -> Iterator[cst.BaseExpression]:
    """Where `w` is used of `w = model.head.weight`, and of `w = p.detach()`."""
    statement = enclosing(ctx, param, cst.Assign)
    if statement is not None and only_target(statement) is not None and is_sharded(statement.value, ctx):
        yield from ctx.uses(statement)


def _is_made_local(reading: Reading, ctx: Context) -> bool:
    """Whether a rule makes local values of those in a function that adds them up over the ranks, or of their norms."""
    function = enclosing(ctx, reading.node, cst.FunctionDef)
    rules = (added_up_by_hand, parameters_added_up, norms_of_pieces)
    return function is not None and any(rule(function, ctx) for rule in rules)


CHECK = Check(
    CODE, "value-of-a-shard", __doc__, words=(*READERS, *_NORMS, *KEPT, "weight", "bias", "params"), find=find
)
