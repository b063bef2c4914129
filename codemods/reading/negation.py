"""The opposite of a condition, as a person writes it."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context

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


def negated(test: cst.BaseExpression, ctx: Context) -> str:
    """A template: `not last` becomes `last`, `i < n` becomes `i >= n`, `a and not b` becomes `not a or b`."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return ctx.quote(test.expression)
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        target = test.comparisons[0]
        opposite = _OPPOSITE.get(type(target.operator))
        if opposite is not None:
            return f"{ctx.quote(test.left)} {opposite} {ctx.quote(target.comparator)}"
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        parts = conjuncts(test)
        if any(_is_negative(part) for part in parts) and not any(isinstance(p, cst.BooleanOperation) for p in parts):
            return " or ".join(negated(part, ctx) for part in parts)
    text = ctx.quote(test)
    simple = isinstance(test, (cst.Name, cst.Attribute, cst.Call, cst.Subscript)) or bool(test.lpar)
    return f"not {text}" if simple else f"not ({text})"


def conjuncts(test: cst.BaseExpression) -> list[cst.BaseExpression]:
    """`a`, `b` and `c` of `a and b and c`."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        return [*conjuncts(test.left), *conjuncts(test.right)]
    return [test]


def _is_negative(test: cst.BaseExpression) -> bool:
    if isinstance(test, cst.UnaryOperation):
        return isinstance(test.operator, cst.Not)
    negative = (cst.NotEqual, cst.NotIn, cst.IsNot)
    return isinstance(test, cst.Comparison) and isinstance(test.comparisons[0].operator, negative)
