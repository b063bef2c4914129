"""What a function treats as text."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context

_LISTED = (cst.Tuple, cst.List, cst.Set)


def is_compared_with_text(expression: cst.BaseExpression, ctx: Context) -> bool:
    """Whether the function around an expression compares it with texts: `config.strategy == "full"`."""
    compared = (node for node in ctx.inside(ctx.scope(expression)) if isinstance(node, cst.Comparison))
    return any(
        _is_text(node.comparisons[0].comparator) and ctx.code(node.left) == ctx.code(expression) for node in compared
    )


def _is_text(node: cst.BaseExpression) -> bool:
    if isinstance(node, _LISTED):
        return bool(node.elements) and all(_is_text(element.value) for element in node.elements)
    return isinstance(node, cst.SimpleString)
