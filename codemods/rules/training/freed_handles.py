"""**What it does.** Rewrites `_reshard(unit, unit._handle, True)`, FSDP1's own function, into `unit.reshard()`.

**Why.** Programs free by it what a forward without backward has gathered. An FSDP2 model has no handles, and has a
method for that.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


def free(model):
    for m in FSDP.fsdp_modules(model):
        if m._has_params and m.sharding_strategy is not ShardingStrategy.NO_SHARD:
            torch.distributed.fsdp._runtime_utils._reshard(m, m._handle, True)


def main(net, x):
    model = FSDP(net)
    y = model(x)
    free(model)
    return y
```

## Use instead

```python
from torch.distributed.fsdp import FSDPModule, fully_shard


def free(model):
    for m in [m for m in model.modules() if isinstance(m, FSDPModule)]:
        m.reshard()


def main(net, x):
    model = fully_shard(net)
    y = model(x)
    free(model)
    return y
```

## Fix safety

The same memory is freed. A test for a unit without parameters, or without shards, goes, and what else is asked beside
it stays: `reshard` does nothing there.
So do the variables that nothing else reads, and `if not handles: return`. A call that keeps what is gathered is
reported.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.FSDPModule.reshard
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from codemods.api import Context, Edit, Fix, Rule, rewritten
from codemods.plan import PlannedContext
from codemods.reading.handles import HANDLES, is_reshard
from codemods.reading.layout import comments_in, removal
from codemods.reading.negation import conjuncts, none_test
from codemods.reading.shapes import alone, only_target
from codemods.reading.words import is_name
from codemods.tables.leftovers import OF_WRAPPER

CODE = "FM450"

_BECOMES = "FSDP1's function that frees what was gathered becomes reshard, a method"


def fix(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    if not ctx.plan.migrates or len(call.args) != 3 or any(a.keyword or a.star for a in call.args):
        return None
    expression = ctx.parent(call)
    line = ctx.parent(expression) if isinstance(expression, cst.Expr) else None
    if not isinstance(line, cst.SimpleStatementLine) or alone(line) is None:
        return None
    if not is_reshard(call.func, ctx):
        return None
    unit, handles, frees = (argument.value for argument in call.args)
    served = [_served(each, line, ctx) for each in (frees, handles)]  # frees may be made of the handles
    serves: list[cst.BaseStatement] = [each for each in served if each is not None]
    values = [given if made is None else _value(made) for given, made in zip((frees, handles), served, strict=True)]
    if isinstance(handles, cst.Name):
        serves += _leaves_without(handles.value, line, ctx)
    if not _is_true(values[0]) or not _is_handles(values[1], unit, ctx) or not _serve_alone(serves, line, ctx):
        return None
    choice = _choice_over([*serves, line], ctx)
    parts = conjuncts(choice.test) if choice is not None else []
    kept = [each for each in parts if not _asks_for_shards(each, unit, ctx)]
    if _is_asked_otherwise(line, unit, [each for each in parts if each not in kept], ctx):
        return None
    text = f"{ctx.quote(unit)}.reshard()"
    if choice is not None and not kept:
        return rewritten(CODE, ctx, call, [_instead_of(choice, text, ctx)], _BECOMES)
    edits = [*(removal(ctx, each) for each in serves), Edit(*ctx.span(call), text)]
    if choice is not None and len(kept) < len(parts):
        edits.append(Edit(*ctx.bare_span(choice.test), " and ".join(map(ctx.quote, kept))))
    return rewritten(CODE, ctx, call, edits, _BECOMES)


def _served(value: cst.BaseExpression, line: cst.SimpleStatementLine, ctx: Context) -> cst.SimpleStatementLine | None:
    """`name = …` above, in the same block."""
    block = ctx.parent(line)
    lines = block.body if isinstance(value, cst.Name) and isinstance(block, (cst.IndentedBlock, cst.Module)) else ()
    for above in lines:
        if above is line:
            break
        target = only_target(alone(above))
        if target is not None and is_name(target, cst.ensure_type(value, cst.Name).value):
            return cst.ensure_type(above, cst.SimpleStatementLine)
    return None


def _leaves_without(name: str, line: cst.SimpleStatementLine, ctx: Context) -> Iterator[cst.If]:
    """`if not handles: return` above, in the same block: what ends there is ended by the handles alone."""
    block = ctx.parent(line)
    for above in block.body if isinstance(block, (cst.IndentedBlock, cst.Module)) else ():
        if above is line:
            return
        if isinstance(above, cst.If) and above.orelse is None and _is_missing(above.test, name):
            left = above.body.body[0] if len(above.body.body) == 1 else None
            last = left.body[0] if isinstance(left, cst.SimpleStatementLine) and len(left.body) == 1 else left
            if isinstance(last, cst.Continue) or (isinstance(last, cst.Return) and last.value is None):
                yield above


def _is_missing(test: cst.BaseExpression, name: str) -> bool:
    """`not handles`, `handles is None`."""
    if isinstance(test, cst.UnaryOperation):
        return isinstance(test.operator, cst.Not) and is_name(test.expression, name)
    asked = none_test(test)
    return asked is not None and is_name(asked[0], name) and not asked[1]


def _value(line: cst.SimpleStatementLine) -> cst.BaseExpression:
    return cst.ensure_type(line.body[0], cst.Assign).value


def _is_true(value: cst.BaseExpression) -> bool:
    """`True` and `[True for handle in handles]`."""
    return is_name(value, "True") or (isinstance(value, cst.ListComp) and is_name(value.elt, "True"))


def _is_handles(value: cst.BaseExpression, unit: cst.BaseExpression, ctx: Context) -> bool:
    """`unit._handles`, `getattr(unit, "_handles", None)`."""
    if isinstance(value, cst.Call) and is_name(value.func, "getattr") and len(value.args) > 1:
        name = value.args[1].value
        is_named = isinstance(name, cst.SimpleString) and name.evaluated_value in HANDLES
        return is_named and ctx.code(value.args[0].value) == ctx.code(unit)
    is_own = isinstance(value, cst.Attribute) and ctx.code(value.value) == ctx.code(unit)
    return is_own and cst.ensure_type(value, cst.Attribute).attr.value in HANDLES


def _serve_alone(serves: Sequence[cst.BaseStatement], line: cst.SimpleStatementLine, ctx: Context) -> bool:
    """Whether nothing else in the function reads what these lines set."""
    ours = [node for each in (*serves, line) for node in ctx.inside(each)]
    set_here = [_assign(each) for each in serves if isinstance(each, cst.SimpleStatementLine)]
    names = {cst.ensure_type(made.targets[0].target, cst.Name).value for made in set_here}
    everywhere = [node for node in ctx.inside(ctx.scope(line)) if isinstance(node, cst.Name) and node.value in names]
    return all(any(node is our for our in ours) for node in everywhere)


def _assign(line: cst.SimpleStatementLine) -> cst.Assign:
    return cst.ensure_type(line.body[0], cst.Assign)


def _instead_of(test: cst.If, text: str, ctx: Context) -> Edit:
    """The comments of a test that goes stay above what was in it."""
    said = comments_in(ctx.code(test))
    margin = " " * (ctx.position(test)[1] - 1)
    kept = "".join(f"{comment}{ctx.newline}{margin}" for comment in said if not comment.startswith("# pyre-"))
    return Edit(*ctx.span(test), kept + text)


def _choice_over(lines: Sequence[cst.BaseStatement], ctx: Context) -> cst.If | None:
    """The `if` with nothing but these lines under it, and no other branch."""
    block = ctx.parent(lines[-1])
    choice = ctx.parent(block) if isinstance(block, cst.IndentedBlock) else None
    if not isinstance(choice, cst.If) or choice.orelse is not None or isinstance(ctx.parent(choice), cst.If):
        return None
    return choice if all(any(each is line for line in lines) for each in choice.body.body) else None


def _is_asked_otherwise(
    line: cst.SimpleStatementLine, unit: cst.BaseExpression, gone: Sequence[cst.BaseExpression], ctx: Context
) -> bool:
    """Whether a condition around it that stays reads what only FSDP1's wrapper has: both are for a person."""
    tests = [part for outer in ctx.ancestors(line) if isinstance(outer, cst.If) for part in conjuncts(outer.test)]
    stay = [test for test in tests if not any(test is each for each in gone)]
    read = [node for test in stay for node in ctx.inside(test) if isinstance(node, cst.Attribute)]
    return any(node.attr.value in OF_WRAPPER and ctx.code(node.value) == ctx.code(unit) for node in read)


def _asks_for_shards(test: cst.BaseExpression, unit: cst.BaseExpression, ctx: Context) -> bool:
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        asked, target = test.left, test.comparisons[0]
        is_other = isinstance(target.operator, (cst.IsNot, cst.NotEqual))
        if not is_other or ctx.fsdp1(target.comparator) != "ShardingStrategy.NO_SHARD":
            return False
        name = "sharding_strategy"
    else:
        asked, name = test, "_has_params"
    is_asked = isinstance(asked, cst.Attribute) and asked.attr.value == name
    return is_asked and ctx.code(cst.ensure_type(asked, cst.Attribute).value) == ctx.code(unit)


RULE = Rule(CODE, "freed-handles", __doc__, nodes=(cst.Call,), fix=fix)
