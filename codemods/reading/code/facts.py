"""What is known on one way through a function: the conditions that were asked there, as texts and answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context


@dataclass(frozen=True)
class Fact:
    """The answer to one condition. `!=` is the opposite of `==`."""

    text: str
    holds: bool
    names: frozenset[str]
    """The names and attributes in it: where one of them is set, nothing is known any more."""


Facts = frozenset[Fact]
NOTHING: Facts = frozenset()


def facts_of(test: cst.BaseExpression, holds: bool, ctx: Context) -> Facts:
    """What a condition says whose answer is known: both parts of a true `and`, both of a false `or`."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return facts_of(test.expression, not holds, ctx)
    if isinstance(test, cst.BooleanOperation):
        if isinstance(test.operator, cst.And) is holds:
            return facts_of(test.left, holds, ctx) | facts_of(test.right, holds, ctx)
        return NOTHING
    text, is_same = _plain(test, ctx)
    return frozenset({Fact(text, holds is is_same, names_in(test, ctx))})


def answer(test: cst.BaseExpression, facts: Facts, ctx: Context) -> bool | None:
    """What a condition comes to where these facts hold; None where they do not say."""

    def of_part(part: cst.BaseExpression) -> bool | None:
        text, is_same = _plain(part, ctx)
        return next((fact.holds is is_same for fact in facts if fact.text == text), None)

    return combined(test, of_part)


def combined(test: cst.BaseExpression, of_part: Callable[[cst.BaseExpression], bool | None]) -> bool | None:
    """What `not`, `and` and `or` make of the parts of a condition; None is for what is not known."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        inner = combined(test.expression, of_part)
        return None if inner is None else not inner
    if isinstance(test, cst.BooleanOperation):
        decides = isinstance(test.operator, cst.Or)
        answers = {combined(test.left, of_part), combined(test.right, of_part)}
        return decides if decides in answers else None if None in answers else not decides
    return of_part(test)


def without(facts: Facts, names: Iterable[str]) -> Facts:
    """What is still known when these names have been set."""
    gone = set(names)
    return frozenset(fact for fact in facts if not fact.names & gone) if gone else facts


def names_in(node: cst.CSTNode, ctx: Context) -> frozenset[str]:
    return frozenset(inner.value for inner in ctx.inside(node) if isinstance(inner, cst.Name))


def _plain(test: cst.BaseExpression, ctx: Context) -> tuple[str, bool]:
    """The text of a condition without white space and brackets, and whether it asks the same, or the opposite."""
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        target = test.comparisons[0]
        if isinstance(target.operator, (cst.Equal, cst.NotEqual)):
            left, right = _squeezed(ctx.code(test.left)), _squeezed(ctx.code(target.comparator))
            return f"{left}=={right}", isinstance(target.operator, cst.Equal)
    start, end = ctx.bare_span(test)
    return _squeezed(ctx.text[start:end]), True


def _squeezed(text: str) -> str:
    return "".join(text.split())
