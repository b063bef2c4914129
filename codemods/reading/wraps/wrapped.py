"""What a constructor call wraps, and which calls run before it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import upward
from codemods.reading.code.places import base, bound
from codemods.reading.wraps.manual import arguments, is_constructor

_WRAPPERS = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
_AROUND = frozenset({f"{_WRAPPERS}.checkpoint_wrapper", f"{_WRAPPERS}.offload_wrapper", "torch.compile"})
"""What puts a module around another one, or gives it back."""
_LEAVES = (cst.Return, cst.Raise, cst.Continue, cst.Break)


def wrapped_module(call: cst.Call) -> cst.BaseExpression | None:
    """What a constructor call wraps, also when its other arguments are not seen."""
    named = (a.value for a in call.args if a.keyword is not None and a.keyword.value == "module")
    first = call.args[0] if call.args and not call.args[0].star and call.args[0].keyword is None else None
    return next(named, first.value if first is not None else None)


def wrapped_place(ctx: Context, call: cst.Call) -> str | None:
    """The place of the model that a constructor call wraps, or a part of it; a loop variable stands for its loop.

    Of `FSDP(*args)` it is `args`.
    """
    module = wrapped_module(call) or next((each.value for each in call.args[:1] if each.star == "*"), None)
    if module is None:
        return None
    found = base(_inside(ctx, module))
    for node in ctx.ancestors(module):
        loop = node.for_in if isinstance(node, cst.BaseComp) else node
        if isinstance(loop, (cst.For, cst.CompFor)) and found in set(bound(loop.target)):
            return next(looped_over(loop.iter), None)
    return found


def _inside(ctx: Context, module: cst.BaseExpression) -> cst.BaseExpression:
    """`block` of `checkpoint_wrapper(block)`, which is a part of the same model."""
    while isinstance(module, cst.Call) and module.args and _puts_around(ctx, module.func):
        module = module.args[0].value
    return module


def _puts_around(ctx: Context, function: cst.BaseExpression) -> bool:
    if ctx.dotted(function) is not None:
        return ctx.dotted(function) in _AROUND
    made = [(o.file, o.node) for o in ctx.origins(function)] if isinstance(function, cst.Name) else []
    partials = [(where, node) for where, node in made if isinstance(node, cst.Call) and node.args]
    return (
        bool(made)
        and len(partials) == len(made)
        and all(
            where.dotted(node.func) == "functools.partial" and where.dotted(node.args[0].value) in _AROUND
            for where, node in partials
        )
    )


def looped_over(iterated: cst.BaseExpression) -> Iterator[str]:
    """What is looped over: `model` in `enumerate(model.layers)`; a call's first argument comes first."""
    if isinstance(iterated, cst.Call) and not isinstance(iterated.func, cst.Attribute):
        for argument in iterated.args:
            yield from looped_over(argument.value)
    elif (found := base(iterated)) is not None:
        yield found


def calls_above(ctx: Context, call: cst.Call, model: str) -> Iterator[cst.Call]:
    """The calls that run before this one: above it in its function, or at the top for a name from there."""
    here = ctx.span(call)[0]
    for other in ctx.calls(ctx.scope(call)):
        if ctx.span(other)[0] < here and not is_on_another_way(ctx, other, call):
            yield other
    if not isinstance(ctx.scope(call), cst.Module) and not ctx.is_local(model.split(".")[0], call):
        yield from ctx.calls(ctx.top)


def is_on_another_way(ctx: Context, other: cst.CSTNode, call: cst.CSTNode) -> bool:
    """Whether `other` stands in a branch that leaves the function before the call, or in the call's `else`."""
    around = set(ctx.ancestors(call))
    for inner, node in upward(ctx, other):
        if node in around:
            return isinstance(node, cst.If) and inner is not node.test
        if isinstance(node, cst.IndentedBlock) and node.body and isinstance(node.body[-1], cst.SimpleStatementLine):
            if isinstance(node.body[-1].body[-1], _LEAVES):
                return True
    return False


def same_unit_inside(ctx: Context, call: cst.Call) -> cst.Call | None:
    """The constructor call that a call wraps directly, where both have the same arguments."""
    inner = wrapped_module(call) if is_constructor(ctx, call) else None
    if not isinstance(inner, cst.Call) or not is_constructor(ctx, inner):
        return None
    return inner if _settings(ctx, call) == _settings(ctx, inner) else None


def _settings(ctx: Context, call: cst.Call) -> set[tuple[str, str]]:
    """The arguments but the module, each by its keyword, or its stars and place, and its text."""
    module = wrapped_module(call)
    given = [(i, a) for i, a in enumerate(arguments(ctx, call)) if a.value is not module]
    return {(a.keyword.value if a.keyword is not None else f"{a.star}{i}", ctx.code(a.value)) for i, a in given}
