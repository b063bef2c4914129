"""**What it does.** Takes away statements that give several FSDP1 models the same CUDA streams: `a._streams =
b._streams`.

**Why.** The attribute is FSDP1's own (torch 2.1 took it away), and no FSDP2 model has it: reading it raises, and
setting it does nothing.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main(student, teacher):
    student, teacher = FSDP(student), FSDP(teacher)
    torch.cuda.synchronize()
    student._streams = teacher._streams
    return student, teacher
```

## Use instead

```python
import torch
from torch.distributed.fsdp import fully_shard


def main(student, teacher):
    student, teacher = fully_shard(student), fully_shard(teacher)
    torch.cuda.synchronize()
    return student, teacher
```

## Fix safety

The same is computed. Each FSDP2 model gathers in streams of its own, as FSDP1 did before the statement: models that are
run in turn may hold a little more memory at a time.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Fix, ModelKind, Rule, rewritten
from codemods.plan import PlannedContext
from codemods.reading.edits.layout import removal

CODE = "FM449"

_STREAMS = "_streams"
_GOES = "FSDP2's models have streams of their own, and share none: the statement goes"


def fix(node: cst.Assign, ctx: PlannedContext) -> Fix | None:
    line = ctx.parent(node)
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return None
    targets = [each.target for each in node.targets]
    if not ctx.plan.migrates or not all(_is_models(target, ctx) for target in targets):
        return None
    if not isinstance(node.value, cst.Name) and not _is_models(node.value, ctx):
        return None
    return rewritten(CODE, ctx, line, [removal(ctx, line)], _GOES)


def _is_models(node: cst.CSTNode, ctx: PlannedContext) -> bool:
    is_streams = isinstance(node, cst.Attribute) and node.attr.value == _STREAMS
    return is_streams and ModelKind.FSDP in ctx.kinds(cst.ensure_type(node, cst.Attribute).value)


RULE = Rule(CODE, "shared-streams", __doc__, nodes=(cst.Assign,), fix=fix)
