"""**What it does.** Finds modules of a wrapped model that are told by the name of their class, or by `type(...)
is`.

**Why.** `fully_shard` gives a sharded module a class of its own: that of a `Block` is `FSDPBlock`, a subclass of
it. `type(m) is Block` and `type(m).__name__ == "Block"` become False without a word, and no class is called
`FullyShardedDataParallel` any more.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def blocks(net, Block):
    model = FSDP(net)
    return [m for m in model.modules() if type(m).__name__ == "Block"]
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def blocks(net, Block):
    model = FSDP(net)
    return [m for m in model.modules() if isinstance(m, Block)]
```

## Fix safety

Nothing is changed: it is reported, for you to decide. `isinstance` answers as before for the modules of the model,
and `isinstance(m, FSDPModule)` for those that are sharded.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding

CODE = "FM411"

_OWN = re.compile(r"""["']FSDP["']""")
_WRAPPER = re.compile(r"""["']FullyShardedDataParallel["']""")


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each comparison."""
    if "type(" not in ctx.text and "__class__" not in ctx.text:
        return
    for node in ctx.nodes(cst.Comparison):
        parts = [node.left, *(target.comparator for target in node.comparisons)]
        asked = [module for part in parts if (module := _class_of(part)) is not None]
        if not asked or any(_WRAPPER.search(ctx.code(part)) for part in parts):
            continue  # the wrapper's own name has a rule that rewrites it
        named = any(_OWN.search(ctx.code(part)) for part in parts)
        if named or any(_is_in_model(ctx, module) for module in asked):
            yield finding(
                CODE,
                Level.MANUAL,
                ctx,
                node,
                "a module is told by its class's name or identity, and a sharded module has a class of its own",
                "use isinstance with the class, or with FSDPModule for what is sharded",
            )


def _class_of(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """The `m` of `type(m)`, `type(m).__name__`, `m.__class__` and `m.__class__.__name__`."""
    if isinstance(node, cst.Attribute) and node.attr.value in {"__name__", "__qualname__"}:
        return _class_of(node.value)
    if isinstance(node, cst.Attribute) and node.attr.value == "__class__":
        return node.value
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "type":
        return node.args[0].value if len(node.args) == 1 else None
    return None


def _is_in_model(ctx: Context, module: cst.BaseExpression) -> bool:
    """A wrapped model, or the variable of a loop over the modules of one."""
    if ModelKind.FSDP in ctx.kinds(module):
        return True
    for loop in ctx.ancestors(module):
        over = loop.iter if isinstance(loop, cst.For) else loop.for_in.iter if isinstance(loop, cst.BaseComp) else None
        if isinstance(over, cst.Call) and isinstance(over.func, cst.Attribute):
            walks = over.func.attr.value in {"modules", "named_modules", "children", "named_children"}
            if walks and ModelKind.FSDP in ctx.kinds(over.func.value):
                return True
    return False


CHECK = Check(CODE, "module-by-class-name", __doc__, words=("__name__", "type"), find=find)
