"""Where the objects that an expression can hold are made: a function that makes one makes another at each call."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context

_DEPTH = 6
"""How many names and parameters are followed."""


def are_other_objects(ctx: Context, one: cst.BaseExpression, where: Context, other: cst.BaseExpression) -> bool:
    """Whether two expressions are seen to hold what different calls of the program's own functions made."""
    first, second = {*_births(ctx, one, _DEPTH)}, {*_births(where, other, _DEPTH)}
    return None not in first | second and bool(first) and bool(second) and first.isdisjoint(second)


def _births(ctx: Context, node: cst.BaseExpression, depth: int) -> Iterator[cst.Call | None]:
    """The calls that made it; None for one that is not seen."""
    made = _unchained(node, ctx)
    if isinstance(made, cst.Call):
        yield made if _makes_another(made, ctx) else None
        return
    bound = ctx.bound(made) if isinstance(made, cst.Name) and depth else None
    given = (
        [(where, value) for where, _, value in ctx.passed_to(made, made.value)] if isinstance(made, cst.Name) else []
    )
    found = bound or given
    if not found:
        yield None
    for where, value in found:
        yield from _births(where, value, depth - 1)


def _makes_another(call: cst.Call, ctx: Context) -> bool:
    """Whether each call makes an object of its own, and none is kept for the next: by a decorator, or in a global."""
    runs = ctx.runs(call)
    for where, function in runs:
        inner = list(where.inside(function))
        made = [origin.node for origin in ctx.origins(call)]
        is_here = function.name.value == "__init__" or any(node is not None and node in inner for node in made)
        if not is_here or function.decorators or any(isinstance(node, cst.Global) for node in inner):
            return False
    return bool(runs)


def _unchained(node: cst.BaseExpression, ctx: Context) -> cst.BaseExpression:
    """`build()` of `build().to(device)`, and what `torch.compile` is given."""
    while isinstance(node, cst.Call) and not ctx.runs(node):
        if ctx.dotted(node.func) == "torch.compile" and node.args:
            node = node.args[0].value
        elif isinstance(node.func, cst.Attribute):
            node = node.func.value
        else:
            break
    return node
