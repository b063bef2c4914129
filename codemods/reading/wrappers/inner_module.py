"""The module inside of a wrapper, where the program goes on with both: `wrapped = FSDP(model)`."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import enclosing, upward
from codemods.reading.code.places import place
from codemods.reading.code.program import sets_attribute
from codemods.reading.code.shapes import is_call_to
from codemods.reading.code.words import last_name
from codemods.reading.edits.negation import conjuncts
from codemods.reading.wraps.manual import is_constructor
from codemods.reading.wraps.wrapped import is_on_another_way, wrapped_module


def is_inner_module(model: cst.BaseExpression, use: cst.CSTNode, ctx: Context) -> bool:
    """Whether a constructor call wraps the very module that is used, and gives the result another name."""
    return any(_wraps(call, model, use, ctx) for call in ctx.nodes(cst.Call) if is_constructor(ctx, call))


def may_be_inner_module(model: cst.BaseExpression, use: cst.CSTNode, ctx: Context) -> bool:
    """The same where another branch gives the module's name to another object."""
    calls = [call for call in ctx.nodes(cst.Call) if is_constructor(ctx, call)]
    return any(_wraps(call, model, use, ctx, surely=False) for call in calls)


def _wraps(call: cst.Call, model: cst.BaseExpression, use: cst.CSTNode, ctx: Context, surely: bool = True) -> bool:
    module = wrapped_module(call)
    inner = place(module) if module is not None else None
    if module is None or inner is None or inner != place(model) or not _has_another_name(call, inner, ctx):
        return False
    if ctx.scope(call) is ctx.scope(model):
        below = ctx.span(call)[0] < ctx.span(model)[0] and not is_on_another_way(ctx, call, use)
        if inner.startswith("self."):
            return below and not _is_set_between(inner, call, model, ctx)
        if surely or ctx.same_meaning(model, call):
            return below and ctx.same_meaning(model, call)
        wrapped = {origin.node for origin in ctx.origins(module)} - {None}
        return below and not wrapped.isdisjoint(origin.node for origin in ctx.origins(model))
    return inner.startswith("self.") and enclosing(ctx, call, cst.ClassDef) is enclosing(ctx, model, cst.ClassDef)


def _is_set_between(name: str, call: cst.Call, model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether the function gives an attribute of its object to something else on the way from one to the other."""
    start, end = ctx.span(call)[0], ctx.span(model)[0]
    targets = (node for node in ctx.inside(ctx.scope(call)) if isinstance(node, cst.AssignTarget))
    return any(place(each.target) == name and start < ctx.span(each)[0] < end for each in targets)


def _has_another_name(call: cst.Call, inner: str, ctx: Context) -> bool:
    assignment = ctx.parent(call)
    if not isinstance(assignment, cst.Assign):
        return False
    names = {place(target.target) for target in assignment.targets}
    return None not in names and inner not in names


def is_asked_for(node: cst.Attribute, ctx: Context) -> bool:
    """`model.module if hasattr(model, "module") else model`: an FSDP2 model has none, so that this stays right.

    So does a `try` of the one that does the other where it fails. Where the program sets such an attribute itself,
    FSDP1 gave the model and a loop went on into its own `.module`.
    """
    for inner, outer in upward(ctx, node):
        if isinstance(outer, cst.Try) and outer.body is inner and _is_tried(outer, node, ctx):
            return not sets_attribute(ctx, "module")
        if isinstance(outer, (cst.If, cst.IfExp, cst.While)) and outer.body is inner and _asks(outer.test, node, ctx):
            return isinstance(outer, cst.While) or not sets_attribute(ctx, "module")
    return False


def _is_tried(outer: cst.Try, node: cst.Attribute, ctx: Context) -> bool:
    """`try: model.module.eval()`, and `except AttributeError: model.eval()`."""
    if not outer.handlers:  # `finally` alone
        return False
    handler = outer.handlers[0]
    caught = last_name(handler.type) if handler.type is not None else "Exception"
    if caught not in {"AttributeError", "Exception"} or len(outer.body.body) != 1 or len(handler.body.body) != 1:
        return False
    line, otherwise = outer.body.body[0], handler.body.body[0]
    (start, end), (first, last) = ctx.span(line), (ctx.span(node.value)[1], ctx.span(node)[1])
    return ctx.text[start:first] + ctx.text[last:end] == ctx.code(otherwise)


def _asks(test: cst.BaseExpression, node: cst.Attribute, ctx: Context) -> bool:
    for part in conjuncts(test):
        if is_call_to(part, "hasattr") and len(part.args) == 2:
            model, name = (argument.value for argument in part.args)
            is_inner = isinstance(name, cst.SimpleString) and name.evaluated_value == "module"
            if is_inner and ctx.code(model) == ctx.code(node.value):
                return True
    return False
