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
    for m in model.modules():
        if isinstance(m, FSDPModule):
            m.reshard()


def main(net, x):
    model = fully_shard(net)
    y = model(x)
    free(model)
    return y
```

## Fix safety

The same memory is freed. A test for a unit without parameters, or without shards, goes: `reshard` does nothing there.
It goes too out of a function that is asked in front of such calls alone (dinov2's `is_sharded_fsdp`).
So do the variables that nothing else reads, and `if not handles: return`. A call that keeps what is gathered is
reported.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.FSDPModule.reshard
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context, Edit, Fix, Rule, rewritten
from codemods.plan import PlannedContext
from codemods.reading.code.shapes import alone, only_target
from codemods.reading.code.words import is_name
from codemods.reading.edits.layout import comments_in, removal
from codemods.reading.edits.negation import conjuncts, none_test
from codemods.reading.units.handles import HANDLES, is_reshard
from codemods.reading.units.loops import short_loop
from codemods.tables.leftovers import OF_WRAPPER

CODE = "FM450"

_BECOMES = "FSDP1's function that frees what was gathered becomes reshard, a method"
_GOES = "a test for NO_SHARD goes, which stands in front of reshard alone"


@dataclass(frozen=True)
class _Freed:
    """A call that frees what a unit has gathered."""

    unit: cst.BaseExpression
    serves: Sequence[cst.BaseStatement]
    """What sets its arguments, and nothing else."""
    choice: cst.If | None
    """The condition around nothing but these."""
    needless: Sequence[cst.BaseExpression]
    """What it asks that is met where `reshard` does anything: `unit._has_params`."""


def fix(node: cst.Call | cst.Comparison, ctx: PlannedContext) -> Fix | None:
    if not ctx.plan.migrates:
        return None
    if isinstance(node, cst.Comparison):
        return _asked_by_name(node, ctx)
    freed = _freed(node, ctx)
    if freed is None:
        return None
    edits = [removal(ctx, each) for each in freed.serves]
    text = f"{ctx.quote(freed.unit)}.reshard()"
    choice, kept = freed.choice, []
    if choice is not None and freed.needless:
        kept = [each for each in conjuncts(choice.test) if each not in freed.needless]
        if kept:
            edits.append(Edit(*ctx.span(choice.test), " and ".join(map(ctx.quote, kept))))
    is_whole = choice is not None and freed.needless and not kept
    edits.append(_instead_of(choice, text, ctx) if choice is not None and is_whole else Edit(*ctx.span(node), text))
    return rewritten(CODE, ctx, node, edits, _BECOMES)


def _freed(call: cst.Call, ctx: Context) -> _Freed | None:
    if len(call.args) != 3 or any(a.keyword or a.star for a in call.args):
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
    choice = _choice_around(line, serves, ctx)
    asked = conjuncts(choice.test) if choice is not None else ()
    needless = [each for each in asked if _asks_for_shards(each, unit, ctx)]
    if _is_asked_otherwise(line, unit, needless, ctx):
        return None
    return _Freed(unit, serves, choice, needless)


def _asked_by_name(node: cst.Comparison, ctx: Context) -> Fix | None:
    """`x.sharding_strategy is not NO_SHARD` of what a function returns, which is asked in front of such calls alone."""
    function, holder = ctx.scope(node), next((n for n in ctx.ancestors(node) if isinstance(n, cst.Return)), None)
    if not isinstance(function, cst.FunctionDef) or holder is None or holder.value is None:
        return None
    asked = conjuncts(holder.value)
    names = [param.name for param in function.params.params]
    if node not in asked or len(asked) == 1 or not any(_asks_for_shards(node, name, ctx) for name in names):
        return None
    uses = list(ctx.references_to(function))
    if not uses or len(names) != 1 or not all(_is_in_front(use, where) for where, use in uses):
        return None
    kept = " and ".join(ctx.quote(each) for each in asked if each is not node)
    return rewritten(CODE, ctx, node, [Edit(*ctx.span(holder.value), kept)], _GOES)


def _is_in_front(use: cst.BaseExpression, ctx: Context) -> bool:
    """Whether `is_sharded(unit)` is asked around nothing but a call that frees the unit."""
    call = ctx.parent(use)
    choice = next((outer for outer in ctx.ancestors(use) if isinstance(outer, cst.If)), None)
    if not isinstance(call, cst.Call) or len(call.args) != 1 or choice is None or call not in conjuncts(choice.test):
        return False
    called = (inner for inner in ctx.inside(choice.body) if isinstance(inner, cst.Call))
    freed = [each for each in (_freed(inner, ctx) for inner in called) if each is not None]
    unit = ctx.code(call.args[0].value)
    return any(each.choice is choice and ctx.code(each.unit) == unit for each in freed)


def _choice_around(line: cst.SimpleStatementLine, serves: Sequence[cst.BaseStatement], ctx: Context) -> cst.If | None:
    """The `if` with nothing but these lines under it, and no other branch."""
    block = ctx.parent(line)
    choice = ctx.parent(block) if isinstance(block, cst.IndentedBlock) else None
    if not isinstance(choice, cst.If) or choice.orelse is not None or isinstance(ctx.parent(choice), cst.If):
        return None
    ours = (line, *serves)
    return choice if all(each in ours for each in choice.body.body) else None


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
    if short_loop(next(node for node in ctx.ancestors(test) if not isinstance(node, cst.IndentedBlock)), ctx):
        margin += ctx.indent  # under a test of its own
    kept = "".join(f"{comment}{ctx.newline}{margin}" for comment in said if not comment.startswith("# pyre-"))
    return Edit(*ctx.span(test), kept + text)


def _is_asked_otherwise(
    line: cst.SimpleStatementLine, unit: cst.BaseExpression, needless: Sequence[cst.BaseExpression], ctx: Context
) -> bool:
    """Whether a condition around it reads what only FSDP1's wrapper has: both are for a person."""
    tests = [outer.test for outer in ctx.ancestors(line) if isinstance(outer, cst.If)]
    asked = [each for test in tests for each in conjuncts(test) if each not in needless]
    read = [node for each in asked for node in ctx.inside(each) if isinstance(node, cst.Attribute)]
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


RULE: Rule[cst.Call | cst.Comparison] = Rule(CODE, "freed-handles", __doc__, nodes=(cst.Call, cst.Comparison), fix=fix)
