"""Whether a call of a function can come to a place in it, by the constants that it is called with."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import libcst as cst

from codemods.api import Context
from codemods.reading.class_asked import LEAVES
from codemods.reading.enclosing import enclosing
from codemods.reading.facts import combined

_EQUAL = {cst.Equal: True, cst.Is: True, cst.NotEqual: False, cst.IsNot: False}


class ToldWays:
    """The ways to one place, for all the calls that run the function around it."""

    def __init__(self, ctx: Context, site: cst.CSTNode) -> None:
        self._ctx = ctx
        self._asked = list(on_the_way(ctx, site))
        self._given: dict[cst.Name, Mapping[cst.Call, str]] = {}

    def lead_from(self, call: cst.Call) -> bool:
        """False where `wrap(model, use_fsdp=False)` calls a function that has left by then, or branches elsewhere."""
        asked = ((combined(test, lambda part: self._value(part, call)), holds) for test, holds in self._asked)
        return not any(value is (not holds) for value, holds in asked)

    def _value(self, test: cst.BaseExpression, call: cst.Call) -> bool | None:
        """What a part of a condition is in the run that a call starts; None where that is not seen."""
        if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
            target = test.comparisons[0]
            equal, wanted = _EQUAL.get(type(target.operator)), _literal(self._ctx.code(target.comparator))
            given = self._told(test.left, call) if equal is not None and wanted is not None else None
            return None if given is None else (given == wanted) is equal
        told = self._told(test, call)
        return None if told is None else bool(told[0])

    def _told(self, node: cst.BaseExpression, call: cst.Call) -> tuple[object] | None:
        """The constant that a call gives for a parameter, which the function does not bind anew."""
        if not isinstance(node, cst.Name):
            return None
        if node not in self._given:
            function = enclosing(self._ctx, node, cst.FunctionDef)
            is_bound = function is None or any(_is_bound(each, node.value) for each in self._ctx.inside(function))
            passed = () if is_bound else self._ctx.passed_to(node, node.value)
            self._given[node] = {caller: where.code(argument) for where, caller, argument in reversed(passed)}
        text = self._given[node].get(call)
        return None if text is None else _literal(text)


def on_the_way(ctx: Context, site: cst.CSTNode) -> Iterator[tuple[cst.BaseExpression, bool]]:
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


def _is_bound(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Name) and node.target.value == name


def _literal(text: str) -> tuple[object] | None:
    try:
        return (ast.literal_eval(text),)
    except (SyntaxError, ValueError):
        return None
