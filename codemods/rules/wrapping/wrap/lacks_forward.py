"""Models without a `forward`, whose children are called through methods: the model itself never runs."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.code.program import sets_attribute

_BASES = 8
"""How many classes, each the base of the one before, are looked at."""
_PLAIN = frozenset({"torch.nn.Module", "torch.nn.modules.module.Module", "abc.ABC", "typing.Generic"})
_CALLED = frozenset({"__call__", "__getattr__", "forward"})


def lacks_forward(ctx: Context, made: cst.Call) -> bool:
    """Whether what a call makes is seen to be of a class without one, and is given none."""
    return not sets_attribute(ctx, "forward") and _lacks_forward(ctx, made.func, _BASES)


def _lacks_forward(ctx: Context, node: cst.BaseExpression, depth: int) -> bool:
    classes = [(origin.file, origin.node) for origin in ctx.origins(node)]
    return bool(classes and depth) and all(
        isinstance(each, cst.ClassDef)
        and not any(_gives_forward(inner) for inner in where.inside(each.body))
        and all(_is_plain(where, base.value) or _lacks_forward(where, base.value, depth - 1) for base in each.bases)
        for where, each in classes
    )


def _is_plain(ctx: Context, base: cst.BaseExpression) -> bool:
    return ctx.dotted(base.value if isinstance(base, cst.Subscript) else base) in _PLAIN


def _gives_forward(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.FunctionDef):
        return node.name.value in _CALLED
    return isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Name) and node.target.value == "forward"
