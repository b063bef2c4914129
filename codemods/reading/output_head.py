"""Which layer of a model makes its output, as its class shows it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.enclosing import is_self

_LINEAR = frozenset({"torch.nn.Linear", "torch.nn.modules.linear.Linear"})


def output_heads(ctx: Context, model: cst.BaseExpression) -> list[str] | None:
    """Of each class that a model can be of: the linear layer of its own that its forward calls last.

    None where a class is not seen, or has no such layer.
    """
    found: dict[str, None] = {}
    for origin in ctx.origins(model):
        if not isinstance(origin.node, cst.Call):
            return None
        classes = origin.file.origins(origin.node.func)
        for made in classes:
            head = _of_class(made.file, made.node) if isinstance(made.node, cst.ClassDef) else None
            if head is None:
                return None
            found[head] = None
    return list(found) or None


def _of_class(ctx: Context, owner: cst.ClassDef) -> str | None:
    methods = {node.name.value: node for node in owner.body.body if isinstance(node, cst.FunctionDef)}
    if "forward" not in methods or "__init__" not in methods:
        return None
    linear = set(_linear(ctx, methods["__init__"]))
    # A call ends behind those in its arguments, and is made behind them.
    calls = sorted(ctx.calls(methods["forward"]), key=lambda call: ctx.span(call)[1])
    called = [
        call.func.attr.value for call in calls if isinstance(call.func, cst.Attribute) and is_self(call.func.value, ctx)
    ]
    return next((name for name in reversed(called) if name in linear), None)


def _linear(ctx: Context, init: cst.FunctionDef) -> Iterator[str]:
    for node in ctx.inside(init):
        if isinstance(node, cst.Assign) and isinstance(node.value, cst.Call):
            if ctx.dotted(node.value.func) in _LINEAR:
                for target in node.targets:
                    if isinstance(target.target, cst.Attribute) and is_self(target.target.value, ctx):
                        yield target.target.attr.value
