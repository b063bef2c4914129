"""The opposite of a condition, as a person writes it."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from codemods.api import Context
from codemods.reading.code.words import is_name
from codemods.reading.values.choices import written

_OPPOSITE = {
    cst.Equal: "!=",
    cst.NotEqual: "==",
    cst.LessThan: ">=",
    cst.GreaterThan: "<=",
    cst.LessThanEqual: ">",
    cst.GreaterThanEqual: "<",
    cst.In: "not in",
    cst.NotIn: "in",
    cst.Is: "is not",
    cst.IsNot: "is",
}


def negated(test: cst.BaseExpression, ctx: Context, texts: Mapping[cst.CSTNode, str] | None = None) -> str:
    """A template: `not last` becomes `last`, `i < n` becomes `i >= n`, `a and not b` becomes `not a or b`."""

    def quote(node: cst.BaseExpression) -> str:
        return written(ctx, node, texts) if texts else ctx.quote(node)

    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return quote(test.expression)
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        target = test.comparisons[0]
        opposite = _OPPOSITE.get(type(target.operator))
        if opposite is not None:
            return f"{quote(test.left)} {opposite} {quote(target.comparator)}"
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        parts = conjuncts(test)
        if any(_is_negative(part) for part in parts) and not any(isinstance(p, cst.BooleanOperation) for p in parts):
            return " or ".join(negated(part, ctx, texts) for part in parts)
    text = quote(test)
    simple = isinstance(test, (cst.Name, cst.Attribute, cst.Call, cst.Subscript)) or bool(test.lpar)
    return f"not {text}" if simple else f"not ({text})"


def conjuncts(test: cst.BaseExpression) -> list[cst.BaseExpression]:
    """`a`, `b` and `c` of `a and b and c`."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        return [*conjuncts(test.left), *conjuncts(test.right)]
    return [test]


def disjuncts(test: cst.BaseExpression) -> list[cst.BaseExpression]:
    """`a`, `b` and `c` of `a or b or c`."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.Or):
        return [*disjuncts(test.left), *disjuncts(test.right)]
    return [test]


def none_test(test: cst.CSTNode | None) -> tuple[cst.BaseExpression, bool] | None:
    """`x` of `x is None` and `x is not None`, and whether it is the second."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return None
    operator, other = test.comparisons[0].operator, test.comparisons[0].comparator
    is_asked = isinstance(operator, (cst.Is, cst.IsNot)) and is_name(other, "None")
    return (test.left, isinstance(operator, cst.IsNot)) if is_asked else None


def _is_negative(test: cst.BaseExpression) -> bool:
    if isinstance(test, cst.UnaryOperation):
        return isinstance(test.operator, cst.Not)
    negative = (cst.NotEqual, cst.NotIn, cst.IsNot)
    return isinstance(test, cst.Comparison) and isinstance(test.comparisons[0].operator, negative)
