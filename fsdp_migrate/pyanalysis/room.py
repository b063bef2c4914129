"""Settings of the interpreter for the time that trees are alive."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_FRAMES = 8_000
"""For a chain of values at its longest, and in it the text of a file nested as deeply as `tree` allows.

Python 3.10 takes half a kilobyte of the C stack for each.
"""


@contextmanager
def room_for_trees() -> Iterator[None]:
    """Let recursion go deep enough, and collect no garbage.

    Trees are millions of objects that live until the end, and the collector would visit them all again and again.
    """
    frames, collects = sys.getrecursionlimit(), gc.isenabled()
    sys.setrecursionlimit(max(frames, _FRAMES))
    gc.disable()
    try:
        yield
    finally:
        sys.setrecursionlimit(frames)
        if collects:
            gc.enable()
