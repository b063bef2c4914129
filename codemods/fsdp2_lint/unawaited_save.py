"""**What it does.** Finds an asynchronous checkpoint that nobody waits for.

**Why.** `torch.distributed.checkpoint.async_save` returns a future, and writes in a thread. Without a `result()` an
error in writing (a full disk) is never heard; the next call may start while the last one still writes; and the
program that ends before, or destroys the process group, leaves half a checkpoint.

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

Nothing is changed. A call whose future is kept anywhere (in a variable, an attribute, a list, or given away) is taken
to be waited for if the program calls `result()`, `wait()` or a function of `concurrent.futures` at all.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict_saver.async_save
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding

CODE = "FM511"

_WAITS = ("result", "wait", "as_completed", "upload_completion", "staging_completion", "add_done_callback")


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each save."""
    for call in ctx.nodes(cst.Call):
        dotted = ctx.dotted(call.func) or ""
        if not dotted.startswith("torch.distributed.checkpoint.") or not dotted.endswith(".async_save"):
            continue
        if isinstance(ctx.parent(call), cst.Expr) or not ctx.mentions(*_WAITS):
            yield finding(
                CODE,
                Level.MANUAL,
                ctx,
                call,
                "nobody waits for this checkpoint: an error is never heard, and the program may end before it",
                "keep what async_save returns, and call its result() before the next save and at the end",
            )


CHECK = Check(CODE, "unawaited-async-save", __doc__, words=("async_save",), find=find)
