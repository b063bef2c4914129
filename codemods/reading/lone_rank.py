"""Code that runs on one rank only, in a program that wraps on several: `if dist.get_world_size() == 1:`."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.negation import conjuncts
from codemods.reading.told_ways import on_the_way
from codemods.reading.words import last_name, words

_DEPTH = 3
"""How many functions around a constructor call are looked at."""
_SIZE = frozenset({"world", "size"})
_ALONE: dict[tuple[type[cst.BaseCompOp], str], bool] = {
    (cst.Equal, "1"): True,
    (cst.LessThanEqual, "1"): True,
    (cst.LessThan, "2"): True,
    (cst.NotEqual, "1"): False,
    (cst.GreaterThan, "1"): False,
    (cst.GreaterThanEqual, "2"): False,
}
"""Whether a comparison of the number of ranks is true on one rank alone, or on several alone."""


def is_never_wrapped(node: cst.CSTNode, ctx: Context) -> bool:
    """Whether a place is reached on a single rank only, and no constructor call is then."""
    if not _is_asked(node, ctx, alone=True):
        return False
    calls = ctx.wrapping.calls(ctx.path)
    return bool(calls) and all(_is_on_several(call, where, _DEPTH) for where, call in calls)


def _is_on_several(call: cst.CSTNode, ctx: Context, depth: int) -> bool:
    if _is_asked(call, ctx, alone=False):
        return True
    callers = ctx.callers(call) if depth else ()
    return bool(callers) and all(_is_on_several(caller, where, depth - 1) for where, caller in callers)


def _is_asked(node: cst.CSTNode, ctx: Context, alone: bool) -> bool:
    """Whether the number of ranks is asked on the way to a place, and is one there, or is not."""
    for test, holds in on_the_way(ctx, node):
        parts = conjuncts(test) if holds else [test]
        if any(says is not None and (says is holds) is alone for says in (_says_alone(part, ctx) for part in parts)):
            return True
    return False


def _says_alone(test: cst.BaseExpression, ctx: Context) -> bool | None:
    """Whether it is true on one rank alone, or on several alone; None where it asks for something else."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return None
    asked, target = test.left, test.comparisons[0]
    if isinstance(asked, cst.Call):
        asked = asked.func if not asked.args else test
    if not isinstance(asked, (cst.Name, cst.Attribute)) or not words(last_name(asked)) >= _SIZE:
        return None
    return _ALONE.get((type(target.operator), ctx.code(target.comparator)))
