"""**What it does.** With `--checkpoint-format dcp`, full checkpoints become those of `torch.distributed.checkpoint`:
every rank writes and reads its own part, in a folder. Without it, a consolidated file stays one.

**Why.** Gathering a large model on one rank takes its time and its memory.

## Example

```python
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(net, path):
    model = FSDP(net)
    state = {"model": model.state_dict()}
    if dist.get_rank() == 0:
        torch.save(state, path)
```

## Use instead

```python
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard


def save(net, path):
    model = fully_shard(net)
    state = {"model": get_model_state_dict(model)}
    dcp.save(state, checkpoint_id=path)
```

## Fix safety

The same keys and values, in a folder instead of a file. Files that were written before are converted once with
`torch.distributed.checkpoint.format_utils.torch_save_to_dcp(file, folder)`. A save that only one rank can make, because
what it writes is made there, is reported and stays as it is.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Fix, Import, Level, NotStatic, Rule, finding, left
from codemods.plan import PlannedContext
from codemods.reading.edits.block_layout import dedent, replace_head
from codemods.reading.edits.dcp_import import dcp_import
from codemods.reading.state_dicts.dcp_format import check, guard_of, models_of, reads

CODE = "FM312"

_CONVERT = "convert old files once: torch.distributed.checkpoint.format_utils.torch_save_to_dcp(file, folder)"


def fix(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    if not ctx.options.saves_by_dcp:
        return None
    name = ctx.dotted(call.func)
    if name == "torch.load":
        return _load(call, ctx) if models_of(call, ctx) else None
    if name != "torch.save" or not call.args or not reads(call, ctx):
        return None
    try:
        return _save(call, ctx)
    except NotStatic as undecided:
        message = f"the checkpoint stays one file: {undecided}"
        hint = "let every rank call torch.distributed.checkpoint.save with a sharded state dict"
        return left(CODE, Level.MANUAL, ctx, call, message, hint)


def _save(call: cst.Call, ctx: PlannedContext) -> Fix:
    check(call, ctx)
    item = dcp_import(ctx, call)
    path = call.args[1]
    edits = [
        Edit(*ctx.bare_span(call.func), f"{item.local}.save"),
        Edit(ctx.span(path)[0], ctx.span(path.value)[0], "checkpoint_id="),
    ]
    guard = guard_of(call, ctx)
    if guard is not None and len(guard.body.body) == 1:
        edits += replace_head(ctx, guard)
    elif guard is not None:
        edits += dedent(ctx, guard, ctx.whole_lines(guard.body.body[-1])[0])
    message = (
        "torch.save becomes torch.distributed.checkpoint.save, which all ranks make: the checkpoint is a folder now"
    )
    return Fix(edits, [finding(CODE, Level.REVIEW, ctx, call, message, _CONVERT)], [item])


def _load(call: cst.Call, ctx: Context) -> Fix:
    item = ctx.named(Import(SUPPORT, "load_dcp"), call)
    model = ctx.quote(models_of(call, ctx)[0])
    path = next((a for a in call.args if a.keyword is not None and a.keyword.value == "f"), call.args[0])
    text = f"{item.local}({ctx.quote(path.value)}, {model})"
    message = "torch.load becomes load_dcp, a support function, which reads each rank's part"
    return Fix([Edit(*ctx.bare_span(call), text)], [finding(CODE, Level.REVIEW, ctx, call, message, _CONVERT)], [item])


RULE = Rule(CODE, "checkpoint-format", __doc__, nodes=(cst.Call,), fix=fix)
