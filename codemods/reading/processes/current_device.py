"""Where a program says which GPU is its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.program import others

WORDS = ("set_device", "set_device_index", "set_device_idx")

_SETS = re.compile(rf"\b({'|'.join(WORDS)})$")


def device_calls(ctx: Context) -> Iterator[cst.Call]:
    """The calls that set the current device, in this file."""
    return (call for call in ctx.nodes(cst.Call) if _SETS.search(ctx.code(call.func)))


def is_set_elsewhere(ctx: Context) -> bool:
    """Whether another file of the program sets it; a comment that names such a call does not."""
    return any(any(device_calls(other)) for word in WORDS for other in others(ctx, word))
