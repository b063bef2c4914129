"""Where `zero_grad` dropped gradients that no synchronised backward had followed.

FSDP1 kept them in `.grad`. FSDP2 keeps them where no `zero_grad` reaches, and adds them to the next step: an epoch that
ends between two synchronisations changes the next one (last loss 3.045851 before, 2.152269 after, measured on torch
2.13). A `zero_grad` right behind the optimizer's step finds nothing of the kind, since what steps was synchronised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Import, NotStatic
from codemods.reading.program import others, sets_attribute

_SCHEDULER = re.compile(r"sched", re.IGNORECASE)
_LINES = (cst.SimpleStatementLine, cst.SimpleStatementSuite)
_SIMPLE = (*_LINES, cst.BaseSmallStatement)


def discard_gradients(model: cst.BaseExpression, ctx: Context) -> tuple[list[Edit], list[Import]]:
    """The edits that drop the model's unsynchronised gradients behind each `zero_grad` that dropped them so far.

    Raises `NotStatic` where one of them is not seen, or the model is not known beside it.
    """
    for other in others(ctx, "zero_grad"):
        if not all(_follows_step(node, other) for node in other.nodes(cst.Attribute) if node.attr.value == "zero_grad"):
            raise NotStatic(f"{other.path.name} calls zero_grad")
    if sets_attribute(ctx, "grad"):
        raise NotStatic("`.grad` is set by hand")
    edits, imports = [], []
    for call in _dropping(model, ctx):
        if not isinstance(ctx.parent(call), cst.Expr) or not _is_known(model, call, ctx):
            raise NotStatic(f"`{ctx.code(call)}` drops them")
        item = ctx.named(Import(SUPPORT, "discard_unsynced_gradients"), call)
        edits.append(_behind(call, f"{item.local}({ctx.quote(model)})", ctx))
        imports.append(item)
    return edits, imports


def _behind(call: cst.Call, text: str, ctx: Context) -> Edit:
    """One more statement behind the one that is this call: on a line of its own where that has one."""
    if any(".no_sync" in ctx.code(item) for node in ctx.ancestors(call) for item in getattr(node, "items", ())):
        raise NotStatic(f"`{ctx.code(call)}` stands inside of no_sync")
    line = ctx.parent(ctx.parent(call) or call)
    end = ctx.span(call)[1]
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return Edit(end, end, f"; {text}")
    start = ctx.whole_lines(line)[0]
    indent = ctx.text[start : ctx.span(line)[0]]
    comment = ctx.text[end:].split("\n", 1)[0].rstrip("\r")
    return Edit(end, end + len(comment), f"{comment}{ctx.newline}{indent}{text}")


def _dropping(model: cst.BaseExpression, ctx: Context) -> Iterator[cst.Call]:
    """The calls of `zero_grad` that can find unsynchronised gradients of the model."""
    text = ctx.code(model)
    others = {ctx.code(node.value) for node in ctx.nodes(cst.Attribute) if node.attr.value == "no_sync"} - {text}
    for call in ctx.nodes(cst.Call):
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "zero_grad":
            continue
        if not follows_step(call, ctx) and not _is_for(call.func.value, others, text, ctx):
            yield call


def _is_for(owner: cst.BaseExpression, others: set[str], model: str, ctx: Context) -> bool:
    """Whether what is zeroed is seen to belong to other models that accumulate."""
    made = [ctx.code(owner), *(o.file.code(o.node) for o in ctx.origins(owner) if o.node is not None)]
    return any(_names(made, other) for other in others) and not _names(made, model)


def _names(texts: list[str], model: str) -> bool:
    return any(re.search(rf"(?<![\w.]){re.escape(model)}(?!\w)", text) for text in texts)


def _is_known(model: cst.BaseExpression, call: cst.Call, ctx: Context) -> bool:
    """Whether the model's text means the same model beside the call."""
    if ctx.same_meaning(model, call):
        return True
    owner = model
    while isinstance(owner, cst.Attribute):
        owner = owner.value
    is_self = isinstance(owner, cst.Name) and owner.value == "self" and owner is not model
    return is_self and _class(model, ctx) is not None and _class(model, ctx) is _class(call, ctx)


def _class(node: cst.CSTNode, ctx: Context) -> cst.ClassDef | None:
    """The class whose method a node stands in."""
    function = ctx.scope(node)
    if not isinstance(function, cst.FunctionDef):
        return None
    holder = ctx.scope(function)
    return holder if isinstance(holder, cst.ClassDef) else None


def leaves_backward_behind(block: cst.With, ctx: Context) -> bool:
    """Whether a backward is seen behind a block, in the same function, and none in what the block runs."""
    calls = ctx.calls(ctx.scope(block))
    end = ctx.span(block)[1]
    behind = any(_goes_backward(ctx.code(call.func)) and ctx.span(call)[0] >= end for call in calls)
    return behind and not _runs_backward(block, ctx, set())


def _runs_backward(node: cst.CSTNode, ctx: Context, seen: set[cst.CSTNode]) -> bool:
    """Whether a backward stands in some code, or in the functions of the program that it is seen to call."""
    if node in seen:
        return False
    seen.add(node)
    start, end = ctx.span(node)
    if _goes_backward(ctx.code(node)):
        return True
    inner = [call for call in ctx.nodes(cst.Call) if start <= ctx.span(call)[0] < end]
    return any(_runs_backward(function, where, seen) for call in inner for where, function in ctx.runs(call))


def _goes_backward(text: str) -> bool:
    return "backward" in text or "autograd.grad" in text


def _follows_step(attribute: cst.Attribute, ctx: Context) -> bool:
    call = ctx.parent(attribute)
    return isinstance(call, cst.Call) and call.func is attribute and follows_step(call, ctx)


def follows_step(call: cst.Call, ctx: Context) -> bool:
    """Whether the optimizer has stepped since the last backward, on every way to this call."""
    inner: cst.CSTNode = call
    for outer in ctx.ancestors(call):
        if isinstance(outer, (cst.IndentedBlock, cst.Module, *_LINES)):
            for statement in reversed(outer.body[: list(outer.body).index(inner)]):
                if _always_steps(statement, ctx):
                    return True
                if ".backward" in ctx.code(statement):
                    return False
        if isinstance(outer, (cst.For, cst.While, cst.FunctionDef, cst.ClassDef)):
            return False
        inner = outer
    return False


def _always_steps(statement: cst.CSTNode, ctx: Context) -> bool:
    if isinstance(statement, cst.If):
        other = statement.orelse
        otherwise = other.body if isinstance(other, cst.Else) else other
        return otherwise is not None and _always_steps(statement.body, ctx) and _always_steps(otherwise, ctx)
    if isinstance(statement, (cst.With, cst.Try)):
        return _always_steps(statement.body, ctx)
    if isinstance(statement, cst.IndentedBlock):
        return any(_always_steps(inner, ctx) for inner in statement.body)
    steps = re.findall(r"([\w.\[\]]+)\.step\(", ctx.code(statement)) if isinstance(statement, _SIMPLE) else []
    return any(not _SCHEDULER.search(owner) for owner in steps)
