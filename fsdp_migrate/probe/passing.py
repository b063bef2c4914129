"""Calls that the probe passes on, and whose fault an exception is.

The probe stands between a program and torch in many places, so that its frames are in nearly every traceback. What is
raised below a call that was only passed on is the program's own; below any other of the probe's frames it is the
probe's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")
_HOME = str(Path(__file__).parent)


def passed_on(function: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Result:
    """`function(*args, **kwargs)`, on behalf of the program."""
    return function(*args, **kwargs)


def is_ours(error: BaseException) -> bool:
    """Whether the innermost of the probe's frames that the exception came through did something of its own."""
    innermost = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(_HOME):
            innermost = trace.tb_frame.f_code
        trace = trace.tb_next
    return innermost is not None and innermost is not passed_on.__code__
