"""**What it does.** Finds an asynchronous checkpoint that nobody waits for.

**Why.** `torch.distributed.checkpoint.async_save` returns a future, and writes in a thread. Measured on torch 2.13 with
2 gloo ranks: without a `result()`, an error in writing (a full disk) is never heard; a second save that starts while
the first one still writes mixes up their collectives, and hangs or aborts; a process group that is destroyed meanwhile
leaves a checkpoint without its `.metadata`, which does not load.

## Example

```python
import torch.distributed.checkpoint as dcp


def train(model, steps):
    for step in range(steps):
        dcp.async_save({"model": model.state_dict()}, checkpoint_id=f"step{step}")
```

## Use instead

```python
import torch.distributed.checkpoint as dcp


def train(model, steps):
    saving = None
    for step in range(steps):
        if saving is not None:
            saving.result()
        saving = dcp.async_save({"model": model.state_dict()}, checkpoint_id=f"step{step}")
    if saving is not None:
        saving.result()
```

## Fix safety

Nothing is changed. A call whose future is kept anywhere (in a variable, an attribute, a list, or given away)
is taken to be waited for if the program calls `result()`, `wait()` or a function of `concurrent.futures` at all, unless
all such calls in the function of the save stand behind its `destroy_process_group()`.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict_saver.async_save
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.code.shapes import is_attribute

CODE = "FM511"

_WAITS = ("result", "wait", "as_completed", "upload_completion", "staging_completion", "add_done_callback")
_DESTROYS = ("torch.distributed.destroy_process_group", "torch.distributed.distributed_c10d.destroy_process_group")


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each save."""
    for call in ctx.nodes(cst.Call):
        dotted = ctx.dotted(call.func) or ""
        if not dotted.startswith("torch.distributed.checkpoint.") or not dotted.endswith(".async_save"):
            continue
        if isinstance(ctx.parent(call), cst.Expr) or not ctx.mentions(*_WAITS):
            message = "nobody waits for this checkpoint: an error is never heard, and the next save may meet it"
            hint = "keep what async_save returns, and call its result() before the next save and at the end"
            yield finding(CODE, Level.MANUAL, ctx, call, message, hint)
        elif _ends_first(ctx, call):
            message = "the process group is destroyed before this checkpoint is waited for: it may stay half written"
            yield finding(CODE, Level.MANUAL, ctx, call, message, "call result() above destroy_process_group()")


def _ends_first(ctx: Context, save: cst.Call) -> bool:
    """Whether all that waits in the function of a save and below it stands behind the end of the process group."""
    below = [call for call in ctx.calls(ctx.scope(save)) if ctx.span(call)[0] > ctx.span(save)[0]]
    ends = [ctx.span(call)[0] for call in below if ctx.dotted(call.func) in _DESTROYS]
    waits = [ctx.span(call)[0] for call in below if is_attribute(call.func, *_WAITS)]
    return bool(ends and waits) and min(waits) > min(ends)


CHECK = Check(CODE, "unawaited-async-save", __doc__, words=("async_save",), find=find)
