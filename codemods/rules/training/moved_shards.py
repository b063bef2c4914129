"""**What it does.** Rewrites a loop over `model._all_handles` that moves each flat parameter, as programs do that train
and generate in turn, into `model.to(device)`.

**Why.** An FSDP2 model has no handles. Its shards are parameters, and `model.to` moves them, with what is gathered from
them. What the program did by hand besides, to start the model and to keep FSDP1's views together, has no counterpart.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp._runtime_utils import _lazy_init


def offload(model):
    _lazy_init(model, model)
    assert model._is_root
    for handle in model._all_handles:
        if handle._offload_params:
            continue
        flat_param = handle.flat_param
        handle.flat_param_to("cpu", non_blocking=True)
        flat_param._local_shard = flat_param.data
    torch.cuda.empty_cache()


def main(net):
    offload(FSDP(net))
```

## Use instead

```python
import torch
from torch.distributed.fsdp import fully_shard


def offload(model):
    model.to("cpu", non_blocking=True)
    torch.cuda.empty_cache()


def main(net):
    offload(fully_shard(net))
```

## Fix safety

Only a loop that does nothing else is rewritten. Buffers move as well. A model with `CPUOffloadPolicy`, which the loop
left out, must not be moved to the device: FSDP2 raises in the next forward if it is.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Edit, Fix, Level, Rule, finding
from codemods.reading.code.shapes import is_attribute
from codemods.reading.edits.layout import removal
from codemods.reading.units.handles import started

CODE = "FM443"


def fix(loop: cst.For, ctx: Context) -> Fix | None:
    """Of `for handle in model._all_handles:`."""
    handles = loop.iter
    if loop.orelse is not None or not isinstance(handles, cst.Attribute) or handles.attr.value != "_all_handles":
        return None
    inside = (each for each in ctx.inside(loop.body) if isinstance(each, cst.Call))
    moves = [each for each in inside if is_attribute(each.func, "flat_param_to")]
    if len(moves) != 1 or not all(_belongs(statement, moves) for statement in loop.body.body):
        return None
    device = ", ".join(ctx.quote(argument) for argument in moves[0].args)
    moved = Edit(*ctx.span(loop), f"{ctx.quote(handles.value)}.to({device})")
    message = "moving each flat parameter becomes a move of the model; its buffers go along"
    hint = "do not move a model with CPUOffloadPolicy, which the loop left out"
    gone = [removal(ctx, statement) for statement in started(loop, ctx)]
    return Fix([*gone, moved], [finding(CODE, Level.REVIEW, ctx, loop, message, hint)])


def _belongs(statement: cst.BaseStatement | cst.BaseSmallStatement, moves: list[cst.Call]) -> bool:
    """Whether it moves, leaves out what is offloaded, or keeps FSDP1's views of the flat parameter together."""
    if isinstance(statement, cst.If):
        return statement.orelse is None and all(_belongs(each, moves) for each in statement.body.body)
    if isinstance(statement, cst.SimpleStatementLine):
        return all(_belongs(each, moves) for each in statement.body)
    if isinstance(statement, cst.Expr):
        return statement.value in moves
    if isinstance(statement, cst.Assign):
        target = statement.targets[0].target
        return isinstance(target, cst.Name) or is_attribute(target, "_local_shard")
    return isinstance(statement, (cst.Assert, cst.Continue))


RULE = Rule(CODE, "moved-flat-parameters", __doc__, nodes=(cst.For,), fix=fix)
