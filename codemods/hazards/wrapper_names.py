"""**What it does.** Finds parameter names that are searched for the parts that FSDP1 put into them.

**Why.** FSDP2 has the model's own names. Taking `_fsdp_wrapped_module.` out of a name changes nothing any more, but
asking whether it is there is False for all of them.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def wrapped(net):
    model = FSDP(net, use_orig_params=True)
    return [name for name, _ in model.named_parameters() if "_fsdp_wrapped_module" in name]
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def cleaned(net):
    model = FSDP(net, use_orig_params=True)
    return [name.replace("_fsdp_wrapped_module.", "") for name, _ in model.named_parameters()]
```

## Fix safety

Nothing is changed: it is reported, for you to decide. `replace` and `removeprefix` do nothing now, and may stay.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding

CODE = "FM418"

_PARTS = ("_fsdp_wrapped_module", "_flat_param", "_fpw_module")


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each question."""
    for node in ctx.nodes(cst.SimpleString):
        if not any(part in node.value for part in _PARTS):
            continue
        holder = ctx.parent(node)
        if not _is_filter(ctx, node) and not _is_asked(ctx, holder) and not _is_whole_name(ctx, node):
            continue
        yield finding(
            CODE,
            Level.MANUAL,
            ctx,
            node,
            "names are searched for what FSDP1 put into them, and FSDP2's names are those of the model",
            "ask for what is meant: isinstance(module, FSDPModule), or the name without it",
        )


def _is_filter(ctx: Context, node: cst.SimpleString) -> bool:
    """`[… if "…" in name]`; a test before a `replace` only spares the call."""
    for outer in ctx.ancestors(node):
        if isinstance(outer, cst.CompIf):
            return True
        if not isinstance(outer, (cst.Comparison, cst.ComparisonTarget, cst.UnaryOperation, cst.BooleanOperation)):
            return False
    return False


def _is_asked(ctx: Context, holder: cst.CSTNode | None) -> bool:
    """`name.startswith("…")`, `name.endswith("…")`, `name.split("…")`."""
    call = ctx.parent(holder) if isinstance(holder, cst.Arg) else None
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
        return False
    return call.func.attr.value in {"startswith", "endswith", "split", "find", "index"}


def _is_whole_name(ctx: Context, node: cst.SimpleString) -> bool:
    """`name == "_fsdp_wrapped_module.emb"`, `name in ["_fsdp_wrapped_module.emb"]`, a key of a table of names."""
    if str(node.evaluated_value).strip(".") in _PARTS:
        return False
    holder = ctx.parent(node)
    if isinstance(holder, cst.ConcatenatedString):
        return False
    return isinstance(holder, (cst.Comparison, cst.ComparisonTarget, cst.Element, cst.DictElement, cst.Index))


CHECK = Check(
    CODE, "wrapper-in-names", __doc__, words=("_fsdp_wrapped_module", "_flat_param", "_fpw_module"), find=find
)
