"""Whether a call of a function can come to a place in it, by the constants that it is called with."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.class_asked import LEAVES
from codemods.reading.enclosing import enclosing
from codemods.reading.facts import combined

_EQUAL = {cst.Equal: True, cst.Is: True, cst.NotEqual: False, cst.IsNot: False}


def can_come(ctx: Context, site: cst.CSTNode, call: cst.Call) -> bool:
    """False where `wrap(model, use_fsdp=False)` calls a function that has left by then, or branches elsewhere.

    `call`, in whichever file, runs the function around `site`.
    """
    asked = ((combined(test, lambda part: _value(part, call, ctx)), holds) for test, holds in _on_the_way(ctx, site))
    return not any(value is (not holds) for value, holds in asked)


def _on_the_way(ctx: Context, site: cst.CSTNode) -> Iterator[tuple[cst.BaseExpression, bool]]:
    """The conditions that are asked before a place is reached, within its function, and what they have to be."""
    inner = site
    for outer in ctx.ancestors(site):
        if isinstance(outer, (cst.If, cst.IfExp)) and inner is not outer.test:
            yield outer.test, inner is outer.body
        elif isinstance(outer, cst.IndentedBlock):
            for statement in outer.body:
                if statement is inner:
                    break
                if isinstance(statement, cst.If) and statement.orelse is None and _leaves(statement.body):
                    yield statement.test, False
        if isinstance(outer, (cst.FunctionDef, cst.ClassDef, cst.Lambda)):
            return
        inner = outer


def _leaves(body: cst.BaseSuite) -> bool:
    last = body.body[-1]
    small = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else last
    return isinstance(small, LEAVES)


def _value(test: cst.BaseExpression, call: cst.Call, ctx: Context) -> bool | None:
    """What a part of a condition is in the run that a call starts; None where that is not seen."""
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        target = test.comparisons[0]
        equal, wanted = _EQUAL.get(type(target.operator)), _literal(ctx.code(target.comparator))
        given = _told(test.left, call, ctx)
        return None if equal is None or wanted is None or given is None else (given == wanted) is equal
    told = _told(test, call, ctx)
    return None if told is None else bool(told[0])


def _told(node: cst.BaseExpression, call: cst.Call, ctx: Context) -> tuple[object] | None:
    """The constant that a call gives for a parameter, which the function does not bind anew."""
    function = enclosing(ctx, node, cst.FunctionDef)
    if not isinstance(node, cst.Name) or function is None:
        return None
    if any(_is_bound(each, node.value) for each in ctx.inside(function)):
        return None
    given = [(where, argument) for where, caller, argument in ctx.passed_to(node, node.value) if caller is call]
    return _literal(given[0][0].code(given[0][1])) if given else None


def _is_bound(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Name) and node.target.value == name


def _literal(text: str) -> tuple[object] | None:
    try:
        return (ast.literal_eval(text),)
    except (SyntaxError, ValueError):
        return None
