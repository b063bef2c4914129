"""The ways that lead to a call: from the function it stands in, over its callers, to where the program starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import enclosing
from codemods.reading.code.shapes import alone

_DEPTH = 8
"""A way that is longer is cut there."""


@dataclass(frozen=True)
class Frame:
    """One function, or the top of a file, on a way: and the call in it through which the way goes on."""

    file: Context
    call: cst.Call

    @property
    def scope(self) -> cst.CSTNode:
        return self.file.scope(self.call)

    @property
    def loop(self) -> cst.For | cst.While | None:
        """The outermost loop of the function around the call."""
        return next(iter(reversed(_loops(self))), None)

    @property
    def statement(self) -> cst.SimpleStatementLine | None:
        """The statement that holds the call, if it has its lines for itself."""
        line = enclosing(self.file, self.call, cst.SimpleStatementLine)
        return line if alone(line) is not None else None


Chain = tuple[Frame, ...]
"""The innermost frame first."""


def chains(file: Context, call: cst.Call) -> list[Chain]:
    """Every way to a call, by the callers that are seen."""
    return list(_chains(Frame(file, call), ()))


def _chains(frame: Frame, inner: Chain) -> Iterator[Chain]:
    chain = (*inner, frame)
    known = {each.scope for each in chain}
    callers = [] if len(chain) == _DEPTH else frame.file.callers(frame.call)
    outer = [each for each in (Frame(*caller) for caller in callers) if each.scope not in known]
    if not outer:
        yield chain
    for each in outer:
        yield from _chains(each, chain)


def can_follow(later: Chain, earlier: Chain) -> bool:
    """Whether the call at the end of one way may be made behind that of another; so too if the ways never meet."""
    meetings = [(one, other) for one in later for other in earlier if one.scope is other.scope]
    return not meetings or any(_is_behind(one, other) for one, other in meetings)


def _is_behind(one: Frame, other: Frame) -> bool:
    shared = set(_loops(one)) & set(_loops(other))
    return bool(shared) or one.file.span(one.call)[0] > other.file.span(other.call)[0]


def _loops(frame: Frame) -> list[cst.For | cst.While]:
    """The loops of a frame's own function around its call, the innermost first."""
    found: list[cst.For | cst.While] = []
    for outer in frame.file.ancestors(frame.call):
        if outer is frame.scope:
            break
        if isinstance(outer, (cst.For, cst.While)):
            found.append(outer)
    return found
