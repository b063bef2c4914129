"""Whether a program also runs without a process group: `if world_size > 1: dist.init_process_group()`."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context

_INIT = "init_process_group"
_DEPTH = 3


def may_run_alone(ctx: Context) -> bool:
    """Whether each of the program's `init_process_group` stands under a condition, or is called under one."""
    found = [
        (where, call)
        for where in ctx.files(_INIT)
        for call in where.nodes(cst.Call)
        if (where.dotted(call.func) or "") == f"torch.distributed.{_INIT}"
    ]
    return bool(found) and all(_is_chosen(where, call, _DEPTH) for where, call in found)


def _is_chosen(ctx: Context, call: cst.Call, depth: int) -> bool:
    for inner, outer in zip([call, *ctx.ancestors(call)], ctx.ancestors(call), strict=False):
        if isinstance(outer, cst.If) and inner is not outer.test and not _asks_for_the_start(ctx, outer.test):
            return True
    callers = ctx.callers(call) if depth else ()
    return bool(callers) and all(_is_chosen(where, caller, depth - 1) for where, caller in callers)


def _asks_for_the_start(ctx: Context, test: cst.BaseExpression) -> bool:
    """`if __name__ == "__main__":`, `if not dist.is_initialized():`."""
    names = {node.value for node in ctx.inside(test) if isinstance(node, cst.Name)}
    return bool(names & {"__name__", "is_initialized", "is_available"})
