"""What a call runs, by itself or later through a library, and which argument becomes which parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import libcst as cst

from .definitions import last_name


class _Packed(NamedTuple):
    """A library's call that is handed a function and what to call it with: each by a keyword, or by its position."""

    function: tuple[str, int]
    args: tuple[str, int]
    kwargs: tuple[str, int] | None = None
    is_numbered: bool = False
    """Whether the function is given a number before the arguments: the rank."""


_PACKED = {
    "Process": _Packed(("target", 1), ("args", 3), ("kwargs", 4)),
    "Thread": _Packed(("target", 1), ("args", 3), ("kwargs", 4)),
    "Timer": _Packed(("function", 1), ("args", 2), ("kwargs", 3)),
    "apply_async": _Packed(("func", 0), ("args", 1), ("kwds", 2)),
    "spawn": _Packed(("fn", 0), ("args", 1), is_numbered=True),
    "start_processes": _Packed(("fn", 0), ("args", 1), is_numbered=True),
}
_IN_FRONT = {"partial": 0, "run_in_executor": 1, "submit": 0, "to_thread": 0}
"""Calls that are handed a function at this place, and its arguments behind it."""
DEFERRING = frozenset({*_PACKED, *_IN_FRONT})
"""The names of what calls, at once or later, a function that it is handed."""


class Run(NamedTuple):
    """What a call runs, and what it gives to that."""

    target: cst.BaseExpression
    arguments: tuple[cst.Arg, ...]


def runs(call: cst.Call) -> Run:
    """`f(a)`, and `partial(f, a)`, `Thread(target=f, args=(a,))`, `mp.spawn(f, args=(a,))`, `pool.submit(f, a)`."""
    name = last_name(call.func)
    if name in _IN_FRONT:
        place = _IN_FRONT[name]
        if place < len(call.args) and not any(a.star or a.keyword for a in call.args[: place + 1]):
            return Run(call.args[place].value, tuple(call.args[place + 1 :]))
    elif name in _PACKED:
        packed = _PACKED[name]
        target = _given(call, packed.function)
        if target is not None:
            first = (cst.Arg(call),) if packed.is_numbered else ()
            return Run(target, (*first, *_spread(call, packed.args, "*"), *_spread(call, packed.kwargs, "**")))
    return Run(call.func, tuple(call.args))


def _given(call: cst.Call, parameter: tuple[str, int]) -> cst.BaseExpression | None:
    keyword, place = parameter
    by_name = (a.value for a in call.args if a.keyword is not None and a.keyword.value == keyword)
    by_place = (a.value for a in call.args[place : place + 1] if a.keyword is None and not a.star)
    return next(by_name, None) or next(by_place, None)


def _spread(call: cst.Call, parameter: tuple[str, int] | None, star: Literal["*", "**"]) -> Sequence[cst.Arg]:
    """`args=(a, b)` as `a, b`; anything that is not written out as `*args`."""
    value = _given(call, parameter) if parameter is not None else None
    if value is None:
        return ()
    if isinstance(value, (cst.Tuple, cst.List)) and not any(isinstance(e, cst.StarredElement) for e in value.elements):
        return [cst.Arg(element.value) for element in value.elements]
    return [cst.Arg(value, star=star)]


def parameters(function: cst.FunctionDef | cst.Lambda, bound: bool) -> list[str]:
    """The names a call can fill by position; without the first when the call binds it (`obj.method()`)."""
    names = [parameter.name.value for parameter in (*function.params.posonly_params, *function.params.params)]
    return names[1:] if bound else names


def argument_for(arguments: Sequence[cst.Arg], positional: Sequence[str], name: str) -> cst.BaseExpression | None:
    """The expression that is passed for the parameter `name`.

    None when it is left out, and when `*args` or `**kwargs` hide it.
    """
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
