"""A branch for FSDP1's models beside one that the program has for FSDP2's: the first has nothing left to do."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context, Edit, Reference

_MODULE = "FSDPModule"


def without_own_branch(node: Reference, ctx: Context) -> Edit | None:
    """Takes away what is asked of FSDP1's class where FSDP2's is asked beside it; None where it is not.

    `node` is FSDP1's class in `isinstance(m, (FSDP, FSDPModule))`, in `if isinstance(m, FSDP):` with an `elif` or an
    `if` of the same chain for `FSDPModule`, or in `case FSDP():`.
    """
    holder = ctx.parent(node)
    if isinstance(holder, cst.Element):
        return _element(holder, ctx)
    if isinstance(holder, cst.MatchClass):
        return _case(holder, ctx)
    call = ctx.parent(holder) if isinstance(holder, cst.Arg) else None
    branch = ctx.parent(call) if isinstance(call, cst.Call) else None
    if not isinstance(branch, cst.If) or branch.test is not call or not isinstance(call, cst.Call):
        return None
    asked = ctx.code(call.args[0].value)
    others = (_asked_whole(each, ctx) for each in _chain(branch, ctx) if each is not branch)
    return _branch(branch, ctx) if asked in others else None


def _element(element: cst.Element, ctx: Context) -> Edit | None:
    classes = ctx.parent(element)
    if not isinstance(classes, cst.Tuple) or not any(_is_module(each.value, ctx) for each in classes.elements):
        return None
    kept = [ctx.quote(other.value) for other in classes.elements if other is not element]
    return Edit(*ctx.span(classes), kept[0] if len(kept) == 1 else f"({', '.join(kept)})")


def _case(pattern: cst.MatchClass, ctx: Context) -> Edit | None:
    case = ctx.parent(pattern)
    match = ctx.parent(case) if isinstance(case, cst.MatchCase) else None
    if not isinstance(match, cst.Match) or not isinstance(case, cst.MatchCase) or not _is_bare(case):
        return None
    others = (each.pattern for each in match.cases if each is not case and _is_bare(each))
    if not any(isinstance(other, cst.MatchClass) and _is_module(other.cls, ctx) for other in others):
        return None
    return Edit(*ctx.whole_lines(case), "")


def _is_bare(case: cst.MatchCase) -> bool:
    """Whether it asks for a class, and nothing else."""
    pattern = case.pattern
    return case.guard is None and isinstance(pattern, cst.MatchClass) and not (pattern.patterns or pattern.kwds)


def _chain(branch: cst.If, ctx: Context) -> Iterator[cst.If]:
    """The `if` and each `elif` of it."""
    first: cst.CSTNode = branch
    while isinstance(ctx.parent(first), cst.If):
        first = ctx.parent(first) or first
    each: cst.CSTNode | None = first
    while isinstance(each, cst.If):
        yield each
        each = each.orelse


def _asked_whole(branch: cst.If, ctx: Context) -> str | None:
    """The model of `if isinstance(model, FSDPModule):`."""
    test = branch.test
    if not isinstance(test, cst.Call) or ctx.code(test.func) != "isinstance" or len(test.args) != 2:
        return None
    return ctx.code(test.args[0].value) if _is_module(test.args[1].value, ctx) else None


def _branch(branch: cst.If, ctx: Context) -> Edit:
    """The branch goes; where it is the first, the next one begins the chain."""
    start = ctx.span(branch)[0]
    if not isinstance(ctx.parent(branch), cst.If):
        following = cst.ensure_type(branch.orelse, cst.If)
        return Edit(start, ctx.span(following)[0] + len("elif"), "if")
    end = ctx.whole_lines(branch)[1] if branch.orelse is None else ctx.whole_lines(branch.orelse)[0]
    return Edit(ctx.whole_lines(branch)[0], end, "")


def _is_module(node: cst.BaseExpression, ctx: Context) -> bool:
    return (ctx.dotted(node) or "").endswith(f".{_MODULE}")
