"""Steps from wrapper to wrapper, `while isinstance(m, WRAPPERS): m = m.module`: for FSDP2 they would not end."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from codemods.api import Context

from .enclosing import contains, enclosing
from .words import last_name

_INNER = frozenset({"module", "_fsdp_wrapped_module"})


@dataclass(frozen=True)
class Step:
    """One that is made where the test of a statement holds."""

    statement: cst.While | cst.If | cst.IfExp
    model: str
    recursion: cst.Call | None
    """The call of the function around with `m.module`; None in a loop."""
    classes: cst.BaseExpression | None
    """What is asked for, where `isinstance(m, WRAPPERS)` is all of the test."""


def step_at(node: cst.Attribute, ctx: Context) -> Step | None:
    """The step that `m.module` is, in a loop or in a call of the function that it stands in."""
    holder, model = ctx.parent(node), ctx.code(node.value)
    if node.attr.value not in _INNER:
        return None
    if isinstance(holder, cst.Assign):
        loop = enclosing(ctx, node, cst.While, cst.For, cst.FunctionDef)
        if not isinstance(loop, cst.While) or [ctx.code(target.target) for target in holder.targets] != [model]:
            return None
        if not any(ctx.code(each) == model for each in ctx.inside(loop.test)):
            return None  # a loop over something else
        return None if _asks_for_attribute(loop.test) else Step(loop, model, None, _asked(loop.test, model, ctx))
    call = ctx.parent(holder) if isinstance(holder, cst.Arg) else None
    function = enclosing(ctx, node, cst.FunctionDef)
    if not isinstance(call, cst.Call) or function is None or last_name(call.func) != function.name.value:
        return None
    choice = enclosing(ctx, call, cst.If, cst.IfExp, cst.FunctionDef)
    if not isinstance(choice, (cst.If, cst.IfExp)) or not contains(ctx, choice.body, node):
        return None
    return None if _asks_for_attribute(choice.test) else Step(choice, model, call, _asked(choice.test, model, ctx))


def recursion_under(test: cst.Call, ctx: Context) -> Step | None:
    """The recursion that a test of the class decides about."""
    choice = ctx.parent(test)
    if not isinstance(choice, (cst.If, cst.IfExp)) or choice.test is not test:
        return None
    inner = (node for node in ctx.inside(choice.body) if isinstance(node, cst.Attribute))
    steps = (step_at(node, ctx) for node in inner)
    of_test = (step for step in steps if step is not None and step.statement is choice and step.classes is not None)
    return next((step for step in of_test if step.recursion is not None), None)


def _asks_for_attribute(test: cst.BaseExpression) -> bool:
    """`hasattr(m, "module")`: that ends by itself."""
    return isinstance(test, cst.Call) and last_name(test.func) == "hasattr"


def _asked(test: cst.BaseExpression, model: str, ctx: Context) -> cst.BaseExpression | None:
    if not isinstance(test, cst.Call) or len(test.args) != 2 or ctx.code(test.func) != "isinstance":
        return None
    return test.args[1].value if ctx.code(test.args[0].value) == model else None
