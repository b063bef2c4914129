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

from codemods.api import Context, Edit, Fix, Level, Rule, finding
from codemods.plan import PlannedContext

CODE = "FM216"

_PREFIX = "_fsdp_wrapped_module"


def match(node: cst.CSTNode, ctx: PlannedContext) -> cst.SimpleString | None:
    if not isinstance(node, cst.SimpleString) or not ctx.plan.wraps or not isinstance(ctx.parent(node), cst.Assign):
        return None
    name = node.evaluated_value
    parts = name.split(".") if isinstance(name, str) else []
    is_name = all(part.isidentifier() or part.isdigit() for part in parts)
    return node if _PREFIX in parts and is_name and len(set(parts)) > 1 else None


def edit(node: cst.SimpleString, ctx: Context) -> Fix:
    start, end = ctx.span(node)
    inner = len(node.prefix) + len(node.quote)
    plain = ".".join(part for part in str(node.evaluated_value).split(".") if part != _PREFIX)
    message = f"the name of FSDP2's is `{plain}`: it puts nothing into names"
    changed = Edit(start + inner, end - len(node.quote), plain)
    return Fix([changed], [finding(CODE, Level.REWRITTEN, ctx, node, message)])


RULE: Rule[cst.SimpleString] = Rule(
    CODE, "prefixed-name", __doc__, nodes=(cst.SimpleString,), methods=(), match=match, edit=edit
)
