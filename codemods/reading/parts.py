"""Whether a constructor call may wrap a part of a model that is wrapped as well."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context

from .enclosing import enclosing, is_self
from .wrapped import wrapped_module

_REPEATED = (cst.For, cst.While, cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)


def wraps_parts(ctx: Context, call: cst.Call) -> bool:
    """Whether it wraps what a model holds: in a loop, as a function that is handed on, beside others `model.head`."""
    callers = ctx.callers(call)
    given = [
        (ctx, wrapped_module(call)),
        *((where, argument.value) for where, each in callers for argument in each.args),
    ]
    is_one_of_several = len(callers) > 1 or ctx.wrapping.is_several(ctx.path)
    is_part = is_one_of_several and any(_is_held(where, module) for where, module in given)
    return is_part or _is_repeated(ctx, call) or _is_passed_on(ctx, call)


def _is_held(ctx: Context, module: cst.BaseExpression | None) -> bool:
    if not isinstance(module, (cst.Attribute, cst.Subscript)):
        return False
    owner = enclosing(ctx, module, cst.ClassDef) if is_self(module.value, ctx) else None
    methods = owner.body.body if owner is not None else ()
    is_trainers = owner is not None and not any(
        isinstance(each, cst.FunctionDef) and each.name.value == "forward" for each in methods
    )
    return not is_trainers


def _is_repeated(ctx: Context, call: cst.Call) -> bool:
    """Whether the call, or one of its function, stands in a loop."""
    calls = [(ctx, call), *ctx.callers(call)]
    return any(enclosing(where, each, *_REPEATED) is not None for where, each in calls)


def _is_passed_on(ctx: Context, call: cst.Call) -> bool:
    """Whether something else calls the function of the call: it is given to it as a value.

    What a script is started with, `fire.Fire(main)`, calls it once.
    """
    function = enclosing(ctx, call, cst.FunctionDef, cst.Lambda)
    if not isinstance(function, cst.FunctionDef):
        return function is not None
    names = ctx.references_to(function)
    return any(isinstance(where.parent(name), cst.Arg) and not _is_start(where, name) for where, name in names)


def _is_start(ctx: Context, name: cst.CSTNode) -> bool:
    """Whether it stands under `if __name__ == "__main__"`."""
    branch = enclosing(ctx, name, cst.If, cst.FunctionDef)
    test = branch.test if isinstance(branch, cst.If) else None
    return isinstance(test, cst.Comparison) and isinstance(test.left, cst.Name) and test.left.value == "__name__"
