"""Steps from wrapper to wrapper, `while isinstance(m, WRAPPERS): m = m.module`: for FSDP2 they would not end."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import contains, enclosing, upward
from codemods.reading.code.shapes import class_test, is_call_to
from codemods.reading.code.words import last_name
from codemods.reading.wrappers.asked_classes import asking_for, classes_of
from codemods.reading.wrappers.ddp import is_ddps_class
from codemods.tables.names import WRAPPER

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


def loop_inward(model: str, node: cst.CSTNode, ctx: Context) -> cst.While | None:
    """The loop around that goes on with `m.module`, under whatever condition."""
    loop = enclosing(ctx, node, cst.While, cst.FunctionDef, cst.Lambda)
    steps = [n for n in ctx.inside(loop.body) if isinstance(n, cst.Assign)] if isinstance(loop, cst.While) else []
    own = [each for each in steps if [ctx.code(target.target) for target in each.targets] == [model]]
    inward = any(_is_inner(node, model, ctx) for each in own for node in ctx.inside(each))
    return loop if isinstance(loop, cst.While) and inward else None


def _is_inner(node: cst.CSTNode, model: str, ctx: Context) -> bool:
    """`m.module`, `getattr(m, "module", None)`."""
    if isinstance(node, cst.Attribute):
        return node.attr.value in _INNER and ctx.code(node.value) == model
    if not is_call_to(node, "getattr") or len(node.args) < 2 or ctx.code(node.args[0].value) != model:
        return False
    name = node.args[1].value
    return isinstance(name, cst.SimpleString) and name.evaluated_value in _INNER


def is_told_apart_in_loop(node: cst.Attribute, ctx: Context) -> bool:
    """Whether such a loop asks for FSDP1's class, which goes from its tests: no FSDP2 model comes to `m.module`."""
    loop = loop_inward(ctx.code(node.value), node, ctx)
    named = ctx.inside(loop) if loop is not None and class_test(loop.test, ctx) is None else ()
    return any(isinstance(each, (cst.Name, cst.Attribute)) and ctx.fsdp1(each) == WRAPPER for each in named)


def recursion_under(test: cst.Call, ctx: Context) -> Step | None:
    """The recursion that a test of the class decides about."""
    choice = ctx.parent(test)
    if not isinstance(choice, (cst.If, cst.IfExp)) or choice.test is not test:
        return None
    inner = (node for node in ctx.inside(choice.body) if isinstance(node, cst.Attribute))
    steps = (step_at(node, ctx) for node in inner)
    of_test = (step for step in steps if step is not None and step.statement is choice and step.classes is not None)
    return next((step for step in of_test if step.recursion is not None), None)


def is_only_unwrapped(found: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a class goes from a tuple: wherever that is asked for, all that follows goes on with `m.module`."""
    tests = asking_for(ctx, found) if isinstance(ctx.parent(found), cst.Element) else None
    return bool(tests) and all(
        isinstance(test, cst.Call)
        and _only_goes_inside(test, where)
        and any(each is found for _, each in classes_of(where, test.args[1].value))
        for where, test in tests or ()
    )


def _only_goes_inside(test: cst.Call, ctx: Context) -> bool:
    """Whether what is done to `m.module` where it holds is done to `m` where it does not, and is not to call it.

    Which calls there are to rewrite is asked of the branch that FSDP1's model came to.
    """
    statement, name = ctx.parent(test), ctx.code(test.args[0].value)
    if not isinstance(statement, (cst.While, cst.If, cst.IfExp)) or statement.test is not test:
        return False
    if recursion_under(test, ctx) is not None:
        return True
    inside = _text(statement.body, ctx)
    without = inside.replace(f"{name}.module", name)
    if isinstance(statement, cst.While) or without == f"{name} = {name}":
        return without == f"{name} = {name}" != inside
    if without == inside or any(isinstance(each, cst.Call) for each in ctx.inside(statement.body)):
        return False
    return without == _text(_otherwise(statement, ctx), ctx)


def _otherwise(statement: cst.If | cst.IfExp, ctx: Context) -> cst.CSTNode | None:
    """What runs in place of its body: the `else`, or the next statement."""
    if isinstance(statement, cst.IfExp):
        return statement.orelse
    if statement.orelse is not None:
        return statement.orelse.body if isinstance(statement.orelse, cst.Else) else None
    block = ctx.parent(statement)
    following = list(block.body) if isinstance(block, (cst.IndentedBlock, cst.Module)) else []
    at = following.index(statement) + 1 if statement in following else len(following)
    return following[at] if at < len(following) else None


def _text(node: cst.CSTNode | None, ctx: Context) -> str:
    lines = node.body if isinstance(node, (cst.IndentedBlock, cst.SimpleStatementSuite)) else [node]
    return " ".join(ctx.code(each).strip() for each in lines if each is not None)


def is_of_others(node: cst.Attribute, ctx: Context) -> bool:
    """Whether `m.module` stands where `m` is of a class that is DDP's, or another wrapper's: none of FSDP is left."""
    for inner, outer in upward(ctx, node):
        if isinstance(outer, (cst.If, cst.IfExp, cst.While)) and outer.body is inner:
            asked = _asked(outer.test, ctx.code(node.value), ctx)
            if asked is not None:
                classes = list(classes_of(ctx, asked))
                own = [each for each in classes if each[0].fsdp1(each[1]) == WRAPPER]
                is_ddps = any(is_ddps_class(each, where) for where, each in classes)
                return (is_ddps or len(own) == len(classes)) and all(
                    is_only_unwrapped(each, where) for where, each in own
                )
        if isinstance(outer, cst.FunctionDef):
            return False
    return False


def _asks_for_attribute(test: cst.BaseExpression) -> bool:
    """`hasattr(m, "module")`: that ends by itself."""
    return isinstance(test, cst.Call) and last_name(test.func) == "hasattr"


def _asked(test: cst.BaseExpression, model: str, ctx: Context) -> cst.BaseExpression | None:
    asked = class_test(test, ctx)
    return asked[1] if asked is not None and ctx.code(asked[0]) == model else None
