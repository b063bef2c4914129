"""**What it does.** Takes FSDP1's prefix out of the name of a module or parameter that is kept in a variable.

**Why.** FSDP1 put `_fsdp_wrapped_module.` into the names of what it wrapped. FSDP2's names are those of the model: a
name with the prefix equals none of them, and whatever is left out or grouped by it goes with the rest, without a word.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def groups(net):
    model = FSDP(net, use_orig_params=True)
    excluded = "_fsdp_wrapped_module.head.weight"
    return [p for name, p in model.named_parameters() if name != excluded]
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard


def groups(net):
    model = fully_shard(net)
    excluded = "head.weight"
    return [p for name, p in model.named_parameters() if name != excluded]
```

## Fix safety

Only a whole name is rewritten, of letters and dots. What is searched for in names is reported (FM418).

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Edit, Fix, Rule, rewritten
from codemods.plan import PlannedContext

CODE = "FM216"

_PREFIX = "_fsdp_wrapped_module"


def fix(literal: cst.SimpleString, ctx: PlannedContext) -> Fix | None:
    name = literal.evaluated_value
    if not ctx.plan.wraps or not isinstance(ctx.parent(literal), cst.Assign) or not isinstance(name, str):
        return None
    parts = name.split(".")
    is_name = all(part.isidentifier() or part.isdigit() for part in parts)
    if _PREFIX not in parts or not is_name or len(set(parts)) == 1:
        return None
    start, end = ctx.bare_span(literal)
    inner = len(literal.prefix) + len(literal.quote)
    plain = ".".join(part for part in parts if part != _PREFIX)
    message = f"the name of FSDP2's is `{plain}`: it puts nothing into names"
    changed = Edit(start + inner, end - len(literal.quote), plain)
    return rewritten(CODE, ctx, literal, [changed], message)


RULE = Rule(CODE, "prefixed-name", __doc__, nodes=(cst.SimpleString,), fix=fix)
