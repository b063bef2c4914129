"""The way of a function that no FSDP model takes: where it gathers a sharded one itself on the other."""

from __future__ import annotations

from itertools import pairwise

import libcst as cst

from codemods.api import Context
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import upward
from codemods.reading.code.words import last_name, words
from codemods.reading.edits.negation import conjuncts, disjuncts
from codemods.reading.wrappers.asked_classes import leaves
from codemods.tables.state_dicts import CONTEXT, DCP


def is_way_without_fsdp(call: cst.Call, ctx: PlannedContext) -> bool:
    """Whether this is the other way of `if args.use_fsdp:`, where the program gathers a sharded model itself."""
    for inner, outer in upward(ctx, call):
        if isinstance(outer, cst.FunctionDef):
            return False
        if isinstance(outer, cst.If) and inner is outer.orelse and _says_fsdp(outer.test, ctx):
            if _gathers(outer.body, ctx):
                return True
        if isinstance(outer, cst.If) and inner is outer.body and _denies_fsdp(outer.test):
            below = [each for each in ctx.calls(ctx.scope(call)) if ctx.span(each)[0] > ctx.span(outer.body)[1]]
            if (outer.orelse is not None or leaves(outer.body)) and any(_gathers(each, ctx) for each in below):
                return True
        if isinstance(outer, cst.IndentedBlock):
            above = [each for each in outer.body[: outer.body.index(inner)] if isinstance(each, cst.If)]
            left = [each for each in above if each.orelse is None and leaves(each.body)]
            if any(_says_fsdp(each.test, ctx) and _gathers(each.body, ctx) for each in left):
                return True
    return False


def _gathers(node: cst.CSTNode, ctx: Context) -> bool:
    calls = (each for each in (node, *ctx.inside(node)) if isinstance(each, cst.Call))
    return any(ctx.fsdp1(each.func) == CONTEXT or (ctx.dotted(each.func) or "").startswith(f"{DCP}.") for each in calls)


def _says_fsdp(test: cst.BaseExpression, ctx: PlannedContext) -> bool:
    """`args.use_fsdp`, and `args.distributed and args.use_fsdp` where each constructor call stands under those."""
    if any(_compares(part, cst.Equal) for part in conjuncts(test)):
        return True
    flags = _flags(test)
    if not any("fsdp" in words(flag) for flag in flags):
        return False
    return len(flags) == 1 or all(flags <= _flags_around(call, where) for where, call in ctx.wrapping.calls(ctx.path))


def _denies_fsdp(test: cst.BaseExpression) -> bool:
    """`context is None or context.strategy != "fsdp"`."""
    return any(_compares(part, cst.NotEqual) for part in disjuncts(test))


def _compares(test: cst.BaseExpression, how: type[cst.BaseCompOp]) -> bool:
    """`strategy == "fsdp"`."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    other = test.comparisons[0].comparator
    is_fsdp = isinstance(other, cst.SimpleString) and "fsdp" in words(str(other.raw_value))
    return is_fsdp and isinstance(test.comparisons[0].operator, how)


def _flags_around(call: cst.Call, ctx: Context) -> set[str]:
    """The flags that are set where a call runs."""
    around = (call, *ctx.ancestors(call))
    met = (outer for inner, outer in pairwise(around) if isinstance(outer, cst.If) and inner is outer.body)
    return {flag for outer in met for flag in _flags(outer.test)}


def _flags(test: cst.BaseExpression) -> set[str]:
    """The last names in `cf.ddp and cf.fsdp`; nothing of what asks for something else as well."""
    names = {last_name(part) if isinstance(part, (cst.Name, cst.Attribute)) else "" for part in conjuncts(test)}
    return set() if "" in names else names
