"""**What it does.** Finds uses of a name that one import takes from FSDP1 and another from elsewhere.

**Why.** Where a `try:` imports one class as `FSDP` and its `except ImportError:` another, what `FSDP(model)` wraps with
is decided when the program starts. The arguments of the two are not the same, and a rewrite for one breaks the other.

## Example

```python
try:
    from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP
except ImportError:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def shard(model):
    return FSDP(model)
```

## Use instead

```python
try:
    from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel
except ImportError:
    XlaFullyShardedDataParallel = None
from torch.distributed.fsdp import fully_shard


def shard(model):
    return XlaFullyShardedDataParallel(model) if XlaFullyShardedDataParallel else fully_shard(model)
```

## Fix safety

Nothing is changed. With a name for each, the rest of the program can be rewritten.

## References

- https://docs.pytorch.org/xla/master/perf/fsdp.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.tables.names import fsdp1_name

CODE = "FM114"


def find(ctx: Context) -> Iterator[Finding]:
    """The uses of such a name, where another import of it comes first."""
    names = set(_fsdp1_imports(ctx))
    for node in ctx.nodes(cst.Name) if names else ():
        if node.value not in names or isinstance(ctx.parent(node), (cst.AssignTarget, cst.ImportAlias, cst.AsName)):
            continue
        other = ctx.dotted(node)
        if other is not None and not other.startswith("fairscale.") and fsdp1_name(other) is None:
            message = f"{node.value} is {other} or FSDP1's, as the imports decide when the program starts"
            hint = "import the two under different names, and run again"
            yield finding(CODE, Level.MANUAL, ctx, node, message, hint)


def _fsdp1_imports(ctx: Context) -> Iterator[str]:
    for statement in ctx.nodes(cst.ImportFrom):
        if statement.module is None or isinstance(statement.names, cst.ImportStar):
            continue
        for alias in statement.names:
            if fsdp1_name(f"{ctx.code(statement.module)}.{alias.evaluated_name}") is not None:
                yield alias.evaluated_alias or alias.evaluated_name


CHECK = Check(CODE, "name-of-two-imports", __doc__, words=("FullyShardedDataParallel",), find=find)
