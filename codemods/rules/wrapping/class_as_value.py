"""**What it does.** Rewrites `FullyShardedDataParallel` as a value (a variable, a table of wrappers, an argument, a
default) into `shard_model` of the support module, where all that is done with the value is to call it. The class that a
mock stands for (`Mock(spec=FSDP)`), and one that is asked for (`FSDP is not None`), becomes `FSDPModule`.

**Why.** What is called is only known at run time, and `shard_model` takes the arguments that FSDP1's constructor took.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP

WRAPPERS = {"ddp": DDP, "fsdp": FSDP}


def wrap_model(net, kind, **kwargs):
    return WRAPPERS[kind](net, **kwargs)
```

## Use instead

```python
from torch.nn.parallel import DistributedDataParallel as DDP

from fsdp2_support import shard_model

WRAPPERS = {"ddp": DDP, "fsdp": shard_model}


def wrap_model(net, kind, **kwargs):
    return WRAPPERS[kind](net, **kwargs)
```

## Fix safety

A class that a condition chooses for one call (`(FSDP if sharded else DDP)(net)`) is written out by FM101, with an `if`.
Each way that the value takes is followed to its calls. One that is not (a class test, a base class, an attribute, a
file that imports the table) is reported, and the value stays.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import libcst as cst

from codemods.api import FSDP_MODULE, SUPPORT, Context, Emission, Fix, Import, Reference, Rule, replaced
from codemods.plan import PlannedContext
from codemods.reading.edits.negation import none_test
from codemods.reading.wraps.passed_on import calls_of
from codemods.tables.names import WRAPPER

CODE = "FM109"


def fix(node: Reference, ctx: PlannedContext) -> Fix | None:
    if not ctx.plan.wraps or ctx.fsdp1(node) != WRAPPER:
        return None
    holder = ctx.parent(node)
    if isinstance(holder, (cst.ImportAlias, cst.AsName, cst.Attribute)):
        return None
    if isinstance(holder, cst.Call) and holder.func is node:
        return None
    if _stands_for_objects(holder, ctx):
        return _module_class(node, "the class that a mock or a type variable stands for becomes FSDPModule", ctx)
    if _is_asked_for(node, ctx):
        return _module_class(node, "whether the class could be imported becomes a test of FSDPModule", ctx)
    asked = _type_test(node, ctx)
    if asked is not None:
        test, model, is_negated = asked
        item = ctx.named(FSDP_MODULE, node)
        text = f"{'not ' if is_negated else ''}isinstance({ctx.quote(model)}, {item.local})"
        message = "a test of the type becomes isinstance of FSDPModule"
        return replaced(CODE, ctx, node, text, message, [item], around=test)
    calls = calls_of(ctx, node)
    if calls is None or any(ctx.plan.emission(call) is not Emission.SUPPORT for _, call in calls):
        return None
    item = ctx.named(Import(SUPPORT, "shard_model"), node)
    message = "FullyShardedDataParallel as a value becomes shard_model of the support module"
    return replaced(CODE, ctx, node, item.local, message, [item])


def _is_asked_for(node: cst.CSTNode, ctx: Context) -> bool:
    """`FSDP is not None`, where an import that fails leaves None."""
    asked = none_test(ctx.parent(node))
    return asked is not None and asked[0] is node


def _type_test(node: cst.CSTNode, ctx: Context) -> tuple[cst.Comparison, cst.BaseExpression, bool] | None:
    """`type(model) != FSDP`: the comparison, the model, and whether the answer is the other way round."""
    target = ctx.parent(node)
    test = ctx.parent(target) if isinstance(target, cst.ComparisonTarget) else None
    if not isinstance(test, cst.Comparison) or not isinstance(target, cst.ComparisonTarget):
        return None
    call, operator = test.left, target.operator
    is_type = isinstance(call, cst.Call) and ctx.code(call.func) == "type" and len(call.args) == 1
    if not isinstance(call, cst.Call) or not is_type or len(test.comparisons) != 1:
        return None
    if not isinstance(operator, (cst.Equal, cst.NotEqual, cst.Is, cst.IsNot)):
        return None
    return test, call.args[0].value, isinstance(operator, (cst.NotEqual, cst.IsNot))


def _stands_for_objects(holder: cst.CSTNode | None, ctx: Context) -> bool:
    """`Mock(spec=FSDP)`, which passes for an object of the class, and `TypeVar("T", bound=FSDP)`."""
    call = ctx.parent(holder) if isinstance(holder, cst.Arg) and holder.keyword is not None else None
    if not isinstance(holder, cst.Arg) or not isinstance(call, cst.Call) or holder.keyword is None:
        return False
    return (ctx.dotted(call.func) or "") in _STAND_FOR.get(holder.keyword.value, ())


_MOCKS = frozenset(f"{module}.{name}" for module in ("mock", "unittest.mock") for name in ("Mock", "MagicMock"))
_STAND_FOR = {"spec": _MOCKS, "spec_set": _MOCKS, "bound": {"typing.TypeVar", "typing_extensions.TypeVar"}}


def _module_class(node: Reference, message: str, ctx: Context) -> Fix:
    item = ctx.named(FSDP_MODULE, node)
    return replaced(CODE, ctx, node, item.local, message, [item])


RULE: Rule[Reference] = Rule(CODE, "fsdp-class-as-value", __doc__, nodes=(cst.Name, cst.Attribute), fix=fix)
