"""What stands around a node."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise

import libcst as cst

from codemods.api import Context, N, Source


def enclosing(ctx: Context, node: cst.CSTNode, *kinds: type[N]) -> N | None:
    """The innermost class, function, statement or whatever of these kinds around a node."""
    return next((outer for outer in ctx.ancestors(node) if isinstance(outer, kinds)), None)


def upward(ctx: Source, node: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
    """All that stands around a node, the innermost first, each behind the part of it that the node is, or stands in."""
    return pairwise(chain([node], ctx.ancestors(node)))


def call_given(value: cst.CSTNode, ctx: Source) -> cst.Call | None:
    """The call that a value is an argument of."""
    argument = ctx.parent(value)
    call = ctx.parent(argument) if isinstance(argument, cst.Arg) else None
    return call if isinstance(call, cst.Call) else None


def call_by(function: cst.CSTNode | None, ctx: Source) -> cst.Call | None:
    """The call of what an expression is: `f(x)` for `f`."""
    call = ctx.parent(function) if function is not None else None
    return call if isinstance(call, cst.Call) and call.func is function else None


def named(ctx: Source, node: cst.CSTNode, name: str) -> list[cst.Name]:
    """Where a name stands in a node, as whatever."""
    return [inner for inner in ctx.inside(node) if isinstance(inner, cst.Name) and inner.value == name]


def bound_once(ctx: Context, name: cst.BaseExpression) -> cst.BaseExpression | None:
    """What a variable is set to, where that is one expression of this file."""
    bound = ctx.bound(name) if isinstance(name, cst.Name) else None
    return bound[0][1] if bound is not None and len(bound) == 1 and bound[0][0].path == ctx.path else None


def ifs_around(ctx: Source, node: cst.CSTNode) -> Iterator[cst.If | cst.IfExp]:
    """The choices in whose body a node stands, the innermost first: each of their tests is met there."""
    return (
        outer for inner, outer in upward(ctx, node) if isinstance(outer, (cst.If, cst.IfExp)) and outer.body is inner
    )


def is_label(name: cst.CSTNode, ctx: Source) -> bool:
    """`b` of `a.b`, and `b` of `f(b=1)`: the name of no variable."""
    holder = ctx.parent(name)
    if isinstance(holder, cst.Attribute):
        return holder.attr is name
    return isinstance(holder, cst.Arg) and holder.keyword is name


def contains(ctx: Context, outer: cst.CSTNode, node: cst.CSTNode) -> bool:
    """Whether a node is the other one, or stands in it."""
    return outer is node or any(outer is ancestor for ancestor in ctx.ancestors(node))


def is_self(node: cst.BaseExpression, ctx: Context) -> bool:
    """Whether it is the first parameter of the method that it stands in, be that in a lambda."""
    method = ctx.scope(node)
    while isinstance(method, cst.Lambda):
        method = ctx.scope(method)
    if not isinstance(node, cst.Name) or not isinstance(method, cst.FunctionDef):
        return False
    if any(ctx.code(each.decorator) == "staticmethod" for each in method.decorators):
        return False
    first = next(iter(method.params.params), None)
    return isinstance(ctx.scope(method), cst.ClassDef) and first is not None and first.name.value == node.value


def is_inside(node: cst.CSTNode, context: str, model: str, ctx: Context) -> bool:
    """Whether the node stands in a `with` that enters this FSDP1 context for the model of this text."""
    by_model = f"{model}.{context.rsplit('.')[-1]}"
    for ancestor in ctx.ancestors(node):
        if isinstance(ancestor, cst.With):
            for item in ancestor.items:
                call = item.item
                if not isinstance(call, cst.Call) or not call.args:
                    continue
                if ctx.fsdp1(call.func) == context or ctx.code(call.func) == by_model:
                    return ctx.code(call.args[0].value) == model
    return False


_WITHOUT_GRADIENTS = frozenset({"torch.no_grad", "torch.inference_mode"})


def is_without_gradients(node: cst.CSTNode, ctx: Context) -> bool:
    """Whether no gradient is computed here: in `with torch.no_grad():`, or in a function that it decorates."""
    for outer in ctx.ancestors(node):
        if isinstance(outer, cst.FunctionDef):
            return any(_is_without_gradients(each.decorator, ctx) for each in outer.decorators)
        if isinstance(outer, cst.With) and any(_is_without_gradients(item.item, ctx) for item in outer.items):
            return True
    return False


def is_entered_without_gradients(node: cst.CSTNode, ctx: Context) -> bool:
    """Whether an expression becomes a variable that is entered beside `torch.no_grad()`, and nowhere else."""
    statement = enclosing(ctx, node, cst.Assign)
    target = statement.targets[0].target if statement is not None and len(statement.targets) == 1 else None
    if statement is None or not isinstance(target, cst.Name):
        return False
    uses = ctx.uses(statement)
    return bool(uses) and all(_is_entered(use, ctx) and is_without_gradients(use, ctx) for use in uses)


def _is_entered(use: cst.Name, ctx: Context) -> bool:
    call = ctx.parent(use)
    return isinstance(call, cst.Call) and call.func is use and isinstance(ctx.parent(call), cst.WithItem)


def _is_without_gradients(entered: cst.BaseExpression, ctx: Context) -> bool:
    return ctx.dotted(entered.func if isinstance(entered, cst.Call) else entered) in _WITHOUT_GRADIENTS


def names_around(ctx: Context, node: cst.CSTNode) -> frozenset[str]:
    """Every variable that is used or bound in the function (or module) a node stands in."""
    names = (name for name in ctx.inside(ctx.scope(node)) if isinstance(name, cst.Name))
    return frozenset(name.value for name in names if not is_label(name, ctx))
