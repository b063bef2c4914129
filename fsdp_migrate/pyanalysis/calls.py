"""Which argument of a call becomes which parameter."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst


def parameters(function: cst.FunctionDef | cst.Lambda, bound: bool) -> list[str]:
    """The names a call can fill by position; without the first when the call binds it (`obj.method()`)."""
    names = [parameter.name.value for parameter in (*function.params.posonly_params, *function.params.params)]
    return names[1:] if bound else names


def argument_for(call: cst.Call, positional: Sequence[str], name: str) -> cst.BaseExpression | None:
    """The expression that a call, or a `functools.partial` of it, passes for the parameter `name`.

    None when the call leaves it out, and when `*args` or `**kwargs` hide it.
    """
    arguments = call.args
    if _is_partial(call):
        arguments = arguments[1:]
    for index, argument in enumerate(arguments):
        if argument.star:
            if argument.star == "*":
                positional = ()
            continue
        if argument.keyword is not None:
            if argument.keyword.value == name:
                return argument.value
        elif index < len(positional) and positional[index] == name:
            return argument.value
    return None


def _is_partial(call: cst.Call) -> bool:
    last = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    return isinstance(last, cst.Name) and last.value == "partial"
