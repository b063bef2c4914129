"""Whether a program's process groups take tensors of the CPU, such as norms of offloaded gradients."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path

import libcst as cst

from codemods.api import Context, Edit

_INIT = "init_process_group"
_BOTH = "cpu:gloo,cuda:nccl"


def reaches_cpu(ctx: Context) -> bool:
    """Whether each script that loads this file is seen to have such groups, with `backend_edits` written."""
    found = backend_edits(ctx)
    return found is not None and not any(_is(where, call, "new_group") for where, call in ctx.passing("backend"))


def backend_edits(ctx: Context) -> list[tuple[Context, Edit]] | None:
    """What gives the groups of these scripts gloo for the CPU beside NCCL; None where a backend is not seen.

    Torch's own default is both, and `get_backend()` names both.
    """
    inits = [where for where in ctx.files(_INIT) if ctx.wrapping.runs_with(ctx.path, where.path)]
    found = [(where, call) for where in inits for call in where.nodes(cst.Call) if _is(where, call, _INIT)]
    if any(_may_both_run(*one, *other) for one, other in combinations(found, 2)):
        return None  # two groups of one program: of other processes, perhaps, which all have to name one backend
    edits = [_edits(where, call) for where, call in found]
    known = [each for each in edits if each is not None]
    if not found or len(known) < len(edits) or (any(known) and _asks_for_backend(ctx)):
        return None
    return list(dict.fromkeys(edit for each in known for edit in each))


def _may_both_run(ctx: Context, call: cst.Call, other_ctx: Context, other: cst.Call) -> bool:
    """Whether one script may start both groups, from two files: it loads what calls either."""
    if other_ctx is ctx:
        return False
    return any(ctx.wrapping.runs_with(*paths) for paths in product(_run_from(ctx, call), _run_from(other_ctx, other)))


def _run_from(ctx: Context, init: cst.Call) -> set[Path]:
    """The files that call the function in which a group is started; its own, where no call is seen."""
    return {where.path for where, _ in ctx.callers(init)} or {ctx.path}


def _edits(ctx: Context, call: cst.Call) -> list[tuple[Context, Edit]] | None:
    named = {a.keyword.value: a.value for a in call.args if a.keyword is not None}
    first = call.args[0] if call.args and call.args[0].keyword is None else None
    if any(a.star for a in call.args):
        return None
    backend = first.value if first is not None else named.get("backend")
    if backend is None:
        return []
    origins, written = ctx.origins(backend), list[tuple[Context, Edit]]()
    is_plain = named.keys().isdisjoint({"pg_options", "device_id"})
    for origin in origins:
        if origin.is_none:
            continue
        text = origin.node.evaluated_value if isinstance(origin.node, cst.SimpleString) else None
        if text == "nccl" and is_plain and origin.node is not None and _is_for(ctx, origin.node, backend):
            start, end = ctx.span(origin.node)
            written.append((ctx, Edit(start, end, f"{ctx.text[start]}{_BOTH}{ctx.text[end - 1]}")))
        elif text not in ("gloo", _BOTH):
            return None
    return written if origins else None


def _is_for(ctx: Context, literal: cst.CSTNode, backend: cst.BaseExpression) -> bool:
    """Whether nothing else reads a literal: it stands there, or is a parameter's default that is read there alone."""
    if literal in ctx.inside(backend):
        return True
    parameter, function = ctx.parent(literal), ctx.scope(backend)
    if not isinstance(parameter, cst.Param) or function not in ctx.ancestors(parameter):
        return False
    uses = [node for node in ctx.inside(function) if isinstance(node, cst.Name) and node.value == parameter.name.value]
    return [node for node in uses if node is not parameter.name and not _is_keyword(ctx, node)] == [backend]


def _is_keyword(ctx: Context, name: cst.Name) -> bool:
    argument = ctx.parent(name)
    return isinstance(argument, cst.Arg) and argument.keyword is name


def _asks_for_backend(ctx: Context) -> bool:
    return any(ctx.wrapping.runs_with(ctx.path, where.path) for where in ctx.files("get_backend"))


def _is(ctx: Context, call: cst.Call, function: str) -> bool:
    return ctx.dotted(call.func) == f"torch.distributed.{function}"
