"""**What it does.** Rewrites tests that know an FSDP1 model by the name of its class:
`type(model).__name__ == "FullyShardedDataParallel"`, `"FullyShardedDataParallel" in str(type(model))`, be the name
in a variable first.

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

from codemods.api import FSDP_MODULE, Context, Fix, Import, Level, Raise, Rule, left, replaced
from codemods.reading.wrappers.asked_classes import asked_for_class
from codemods.reading.wrappers.named_classes import Named, instance_named, instance_of, named_by, named_classes
from codemods.tables.names import WRAPPER

CODE = "FM210"

_MESSAGE = "an FSDP1 model is known by the name of its class, and an FSDP2 model's class has another one"
_HINT = "ask isinstance(model, FSDPModule) instead"


def fix(test: cst.Comparison, ctx: Context) -> Fix | None:
    if len(test.comparisons) != 1 or not _is_by_name(test, ctx):
        return None
    named, known, operator = named_classes(ctx, test), _asked(test, ctx), test.comparisons[0].operator
    message = "a test of the class's name becomes a class test"
    item = ctx.named(FSDP_MODULE, test)
    if named is not None and len(named.classes) > 1 and not test.lpar:
        return replaced(CODE, ctx, test, _beside_others(named, test, item, ctx), message, [item])
    if known is None or test.lpar:
        stopped = Raise(test, CODE, _MESSAGE, asked_for_class(ctx, test))
        return left(CODE, Level.MANUAL, ctx, test, _MESSAGE, _HINT, [stopped])
    asked = f"isinstance({ctx.quote(known)}, {item.local})"
    text = f"not {asked}" if isinstance(operator, (cst.NotEqual, cst.NotIn)) else asked
    return replaced(CODE, ctx, test, text, message, [item])


def _beside_others(named: Named, test: cst.Comparison, item: Import, ctx: Context) -> str:
    """Classes besides the wrapper's are told by their names as before."""
    rest = [ctx.code(each) for each in named.classes if not _is_wrapper(each)]
    several = f"({', '.join(rest)})"
    is_one = len(rest) == 1
    asked, name = f"isinstance({ctx.quote(named.asked)}, {item.local})", ctx.quote(named.name)
    if named.is_negated:
        text = f"not {asked} and {name} {'!=' if is_one else 'not in'} {rest[0] if is_one else several}"
    else:
        text = f"{asked} or {name} {'==' if is_one else 'in'} {rest[0] if is_one else several}"
    is_inside = isinstance(ctx.parent(test), (cst.BooleanOperation, cst.UnaryOperation, cst.ComparisonTarget))
    return f"({text})" if is_inside else text


def _is_by_name(test: cst.Comparison, ctx: Context) -> bool:
    text = ctx.code(test) if WRAPPER in ctx.text else ""
    is_named = f'"{WRAPPER}' in text or f"'{WRAPPER}" in text
    if not is_named or "__name__" in text or "type(" in text or "__class__" in text:
        return is_named
    return any(named_by(ctx, part) is not part for part in (test.left, test.comparisons[0].comparator))


def _asked(test: cst.Comparison, ctx: Context) -> cst.BaseExpression | None:
    """`x` of `type(x).__name__ == "Full…"`, and of `"Full…" in str(type(x))`, which has the name in it."""
    target = test.comparisons[0]
    if isinstance(target.operator, (cst.Equal, cst.NotEqual)):
        return instance_named(named_by(ctx, test.left)) if _is_wrapper(target.comparator) else None
    if not isinstance(target.operator, (cst.In, cst.NotIn)) or not _is_wrapper(test.left):
        return None
    whole = target.comparator
    if isinstance(whole, cst.Call) and isinstance(whole.func, cst.Name) and whole.func.value in {"repr", "str"}:
        return instance_of(whole.args[0].value) if len(whole.args) == 1 else None
    return instance_named(named_by(ctx, whole))


def _is_wrapper(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.SimpleString) and node.evaluated_value == WRAPPER


RULE = Rule(CODE, "class-by-name", __doc__, nodes=(cst.Comparison,), fix=fix)
