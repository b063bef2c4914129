"""Parameters of the program's functions that no call of it passes: what they are is known, their defaults."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from codemods.api import Context


def parameter_named(value: cst.Name, function: cst.FunctionDef) -> cst.Param | None:
    """The parameter of a function that a name in it is."""
    params = (*function.params.params, *function.params.kwonly_params)
    return next((param for param in params if param.name.value == value.value), None)


def is_never_passed(ctx: Context, function: cst.FunctionDef, param: cst.Param) -> bool:
    """Whether the program calls a function, or makes partials of it, and never passes this parameter."""
    before = list(function.params.params)
    index = before.index(param) if param in before else len(before)
    references = list(ctx.references_to(function))
    return bool(references) and all(_leaves_out(where, name, param, index) for where, name in references)


def _leaves_out(ctx: Context, reference: cst.CSTNode, param: cst.Param, index: int) -> bool:
    """Whether the function is called, or put into a partial, with what comes before the parameter and not with it."""
    holder = ctx.parent(reference)
    if isinstance(holder, cst.Call) and holder.func is reference:
        given: Sequence[cst.Arg] = holder.args
    else:
        call = ctx.parent(holder) if isinstance(holder, cst.Arg) else None
        if not isinstance(call, cst.Call) or call.args[0] is not holder:
            return False
        if ctx.dotted(call.func) != "functools.partial":
            return False
        given = call.args[1:]
    by_place = sum(argument.keyword is None for argument in given)
    named = {argument.keyword.value for argument in given if argument.keyword is not None}
    is_spread = any(argument.star for argument in given)
    return not is_spread and by_place <= index and param.name.value not in named
