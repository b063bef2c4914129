"""**What it does.** Rewrites `FullyShardedDataParallel` as a value where nothing is wrapped by it: the class that a
mock stands for (`Mock(spec=FSDP)`), and one that is asked for (`FSDP is not None`), becomes `FSDPModule`.

**Why.** An FSDP2 model is an `FSDPModule`. What else holds the class (a variable, a table of wrappers, an argument, an
attribute) is reported, and stays: which arguments it is called with, only run time knows.

## Example

```python
from unittest.mock import Mock

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

model = Mock(spec=FSDP)


def build(net):
    return FSDP(net)
```

## Use instead

```python
from unittest.mock import Mock

from torch.distributed.fsdp import FSDPModule, fully_shard

model = Mock(spec=FSDPModule)


def build(net):
    return fully_shard(net)
```

## Fix safety

The mock passes for an object of the class, as it did.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import libcst as cst

from codemods.api import FSDP_MODULE, Context, Edit, Fix, Level, Reference, Rule, finding
from codemods.plan import PlannedContext
from codemods.tables.names import WRAPPER

CODE = "FM109"


def match(node: cst.CSTNode, ctx: PlannedContext) -> Reference | None:
    if not isinstance(node, (cst.Name, cst.Attribute)) or not ctx.plan.wraps or ctx.fsdp1(node) != WRAPPER:
        return None
    holder = ctx.parent(node)
    if isinstance(holder, (cst.ImportAlias, cst.AsName, cst.Attribute)):
        return None
    if isinstance(holder, cst.Call) and holder.func is node:
        return None
    return node if _is_of_a_mock(holder, ctx) or _is_asked_for(node, ctx) else None


def _is_asked_for(node: cst.CSTNode, ctx: Context) -> bool:
    """`FSDP is not None`, where an import that fails leaves None."""
    test = ctx.parent(node)
    if not isinstance(test, cst.Comparison) or test.left is not node or len(test.comparisons) != 1:
        return False
    asked = test.comparisons[0]
    is_none = isinstance(asked.comparator, cst.Name) and asked.comparator.value == "None"
    return is_none and isinstance(asked.operator, (cst.Is, cst.IsNot))


def _is_of_a_mock(holder: cst.CSTNode | None, ctx: Context) -> bool:
    """`Mock(spec=FSDP)`: what it makes passes for an object of the class, as tests of the program ask for it."""
    call = ctx.parent(holder) if isinstance(holder, cst.Arg) and holder.keyword is not None else None
    if not isinstance(holder, cst.Arg) or not isinstance(call, cst.Call) or holder.keyword is None:
        return False
    return holder.keyword.value in {"spec", "spec_set"} and (ctx.dotted(call.func) or "") in _MOCKS


_MOCKS = frozenset(f"{module}.{name}" for module in ("mock", "unittest.mock") for name in ("Mock", "MagicMock"))


def edit(found: Reference, ctx: Context) -> Fix:
    item = ctx.named(FSDP_MODULE, found)
    is_of_a_mock = _is_of_a_mock(ctx.parent(found), ctx)
    what = "the class that a mock stands for" if is_of_a_mock else "whether the class could be imported"
    message = f"{what} becomes {'FSDPModule' if is_of_a_mock else 'a test of FSDPModule'}"
    return Fix([Edit(*ctx.bare_span(found), item.local)], [finding(CODE, Level.REWRITTEN, ctx, found, message)], [item])


RULE: Rule[Reference] = Rule(
    CODE, "fsdp-class-as-value", __doc__, nodes=(cst.Name, cst.Attribute), methods=(), match=match, edit=edit
)
