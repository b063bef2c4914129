"""**What it does.** Rewrites tests that know an FSDP1 model by the name of its class:
`type(model).__name__ == "FullyShardedDataParallel"`, `"FullyShardedDataParallel" in str(type(model))`.

**Why.** `fully_shard` gives each sharded module's class a name of its own (`FSDPBlock`), and the test would be False
for ever, without a word.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def units(net):
    model = FSDP(net)
    return [m for m in model.modules() if type(m).__name__ == "FullyShardedDataParallel"]
```

## Use instead

```python
from torch.distributed.fsdp import FSDPModule, fully_shard


def units(net):
    model = fully_shard(net)
    return [m for m in model.modules() if isinstance(m, FSDPModule)]
```

## Fix safety

The same modules answer True. A test of another form that holds the class's name is reported, and raises.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.FSDPModule
"""

from __future__ import annotations

import libcst as cst

from codemods.api import FSDP_MODULE, Context, Fix, Level, Raise, Rule, left, replaced
from codemods.reading.asked_classes import asked_for_class
from codemods.tables.names import WRAPPER

CODE = "FM210"

_MESSAGE = "an FSDP1 model is known by the name of its class, and an FSDP2 model's class has another one"
_HINT = "ask isinstance(model, FSDPModule) instead"


def fix(test: cst.Comparison, ctx: Context) -> Fix | None:
    if len(test.comparisons) != 1 or not _is_by_name(test, ctx):
        return None
    known, operator = _asked(test), test.comparisons[0].operator
    if known is None or test.lpar:
        stopped = Raise(test, CODE, _MESSAGE, asked_for_class(ctx, test))
        return left(CODE, Level.MANUAL, ctx, test, _MESSAGE, _HINT, [stopped])
    item = ctx.named(FSDP_MODULE, test)
    asked = f"isinstance({ctx.quote(known)}, {item.local})"
    text = f"not {asked}" if isinstance(operator, (cst.NotEqual, cst.NotIn)) else asked
    message = "a test of the class's name becomes a class test"
    return replaced(CODE, ctx, test, text, message, [item])


def _is_by_name(test: cst.Comparison, ctx: Context) -> bool:
    text = ctx.code(test) if WRAPPER in ctx.text else ""
    is_named = f'"{WRAPPER}' in text or f"'{WRAPPER}" in text
    return is_named and ("__name__" in text or "type(" in text or "__class__" in text)


def _asked(test: cst.Comparison) -> cst.BaseExpression | None:
    """`x` of `type(x).__name__ == "Full…"`, and of `"Full…" in str(type(x))`, which has the name in it."""
    target = test.comparisons[0]
    if isinstance(target.operator, (cst.Equal, cst.NotEqual)):
        return _instance(test.left) if _is_wrapper(target.comparator) else None
    if not isinstance(target.operator, (cst.In, cst.NotIn)) or not _is_wrapper(test.left):
        return None
    whole = target.comparator
    if isinstance(whole, cst.Call) and isinstance(whole.func, cst.Name) and whole.func.value in {"repr", "str"}:
        return _of_class(whole.args[0].value) if len(whole.args) == 1 else None
    return _instance(whole)


def _is_wrapper(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.SimpleString) and node.evaluated_value == WRAPPER


def _instance(name: cst.BaseExpression) -> cst.BaseExpression | None:
    """`x` of `type(x).__name__` and of `x.__class__.__name__`."""
    return _of_class(name.value) if isinstance(name, cst.Attribute) and name.attr.value == "__name__" else None


def _of_class(kind: cst.BaseExpression) -> cst.BaseExpression | None:
    """`x` of `type(x)` and of `x.__class__`."""
    value = None
    if isinstance(kind, cst.Attribute) and kind.attr.value == "__class__":
        value = kind.value
    elif isinstance(kind, cst.Call) and isinstance(kind.func, cst.Name) and kind.func.value == "type":
        value = kind.args[0].value if len(kind.args) == 1 else None
    return value if isinstance(value, (cst.Name, cst.Attribute)) else None


RULE = Rule(CODE, "class-by-name", __doc__, nodes=(cst.Comparison,), fix=fix)
