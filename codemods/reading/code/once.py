"""Questions that many rules ask of the same nodes, and that have one answer as long as the program."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar, cast

from codemods.api import Context

P = ParamSpec("P")
T = TypeVar("T")


def once(ask: Callable[P, T]) -> Callable[P, T]:
    """A function of nodes and the file that they stand in: asked the same again, it gives what it gave.

    Not for what gives an iterator, nor for what the analysis itself asks, which may not know all yet.
    """

    @wraps(ask)
    def answer(*args: P.args, **kwargs: P.kwargs) -> T:
        ctx = next(each for each in args if hasattr(each, "answers"))
        known = cast("Context", ctx).answers
        key = (ask, *args, *kwargs.values())
        if key not in known:
            known[key] = ask(*args, **kwargs)
        return cast("T", known[key])

    return answer
