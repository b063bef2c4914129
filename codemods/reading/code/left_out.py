"""What a condition leaves out between two other places that are both come to."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import contains, ifs_around, upward
from codemods.reading.code.words import last_name

_LEAVES = (cst.Return, cst.Raise, cst.Continue, cst.Break)


def is_left_out(call: cst.Call, others: Sequence[cst.CSTNode], ctx: Context) -> bool:
    """Whether a condition can pass over a call where the others, the last of which stands behind it, run.

    Not where another branch calls a function of the same name, and not where the rest is passed over then as well: by a
    `continue`, or by the same condition around the last of the others.
    """
    last = others[-1]
    tests = {ctx.code(node) for each in ifs_around(ctx, last) for node in ctx.inside(each.test)}
    for inner, outer in upward(ctx, call):
        if isinstance(outer, cst.FunctionDef):
            return False
        if not isinstance(outer, cst.If) or any(contains(ctx, inner, other) for other in others):
            continue
        if ctx.code(outer.test) not in tests and not _is_called_anyway(outer, last_name(call.func), ctx):
            return not _may_leave(ctx.span(outer)[0], last, ctx)
    return False


def _is_called_anyway(branch: cst.If, name: str, ctx: Context) -> bool:
    rest = branch.orelse
    if rest is None or not _calls(branch.body, name, ctx):
        return False
    return _is_called_anyway(rest, name, ctx) if isinstance(rest, cst.If) else _calls(rest, name, ctx)


def _calls(block: cst.CSTNode, name: str, ctx: Context) -> bool:
    return any(isinstance(node, cst.Call) and last_name(node.func) == name for node in ctx.inside(block))


def _may_leave(start: int, last: cst.CSTNode, ctx: Context) -> bool:
    between = (node for node in ctx.inside(ctx.scope(last)) if isinstance(node, _LEAVES))
    return any(start < ctx.span(node)[0] < ctx.span(last)[0] for node in between)
