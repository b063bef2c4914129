"""Whether a program also runs without a process group, which FSDP1 needs.

`if world_size > 1: dist.init_process_group()`, and scripts that start none.
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.code.starts import Kind, Start, starts
from codemods.reading.code.words import last_name
from codemods.reading.forwards.calls import is_without_grad
from codemods.reading.models.plain_objects import is_plain_class

_MAKE_GROUPS = (
    *("init_process_group", "init_distributed", "init_device_mesh", "initialize_dist", "initialize_model_parallel"),
    *("Accelerator", "PartialState", "Fabric"),
)
_INIT = "init_process_group"
_DEPTH = 3


def may_run_alone(ctx: Context, node: cst.CSTNode) -> bool:
    """Whether a run that comes to a place may have no process group: each `init_process_group` of the program, or each
    of the script that comes there, stands under a condition, or is called under one."""
    found = [
        (where, call)
        for where in ctx.files(_INIT)
        for call in where.nodes(cst.Call)
        if (where.dotted(call.func) or "") == f"torch.distributed.{_INIT}"
    ]
    firm = [(where, call) for where, call in found if not _is_chosen(where, call, _DEPTH)]
    if not firm:
        return bool(found)
    made = [other for where, call in firm for other in starts(where, call)]
    seen = [start for start in starts(ctx, node) if start.kind is not Kind.OUTSIDE]
    return any(not any(_is_one_run(start, other, ctx) for other in made) for start in seen)


def makes_group(ctx: Context, call: cst.Call, depth: int = _DEPTH) -> bool:
    """Whether a call makes the process group, or runs a function of the program that does."""
    if last_name(call.func) in _MAKE_GROUPS:
        return True
    run = ctx.runs(call) if depth else ()
    return any(makes_group(where, each, depth - 1) for where, function in run for each in where.calls(function))


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


def has_no_group(ctx: Context, node: cst.CSTNode) -> bool:
    """Whether no run that comes to a place of the program has made a process group.

    Of a method that nobody calls, of an object that is no module, it is taken for granted in code without gradients.
    """
    made = [
        start
        for name in _MAKE_GROUPS
        for where in ctx.files(name)
        for call in where.nodes(cst.Call)
        if last_name(call.func) == name
        for start in starts(where, call)
    ]
    if not made:
        return False
    is_free = is_without_grad(ctx.ancestors(node), ctx)
    may_be_made = any(_is_anyones(start) for start in made)
    return all(
        (start.kind is Kind.SCRIPT or not may_be_made)
        and _is_known(start, is_free)
        and not any(_is_one_run(start, other, ctx) for other in made)
        for start in starts(ctx, node)
    )


def _is_anyones(start: Start) -> bool:
    """Whether code that is not seen may call what is started there."""
    return start.kind is Kind.OUTSIDE and not start.is_test


def _is_known(start: Start, is_free: bool) -> bool:
    if start.kind is not Kind.OUTSIDE or start.is_test or start.function is None:
        return True
    owner = start.file.scope(start.function)
    return is_free and isinstance(owner, cst.ClassDef) and is_plain_class(start.file, owner)


def _is_one_run(start: Start, other: Start, ctx: Context) -> bool:
    """Whether they are of one script; who loads a file that makes the groups, or may call what does, has them too."""
    is_loaded = Kind.LOADED in (start.kind, other.kind) or _is_anyones(other)
    paths = start.file.path, other.file.path
    return paths[0] == paths[1] or (is_loaded and ctx.wrapping.runs_with(*paths))
