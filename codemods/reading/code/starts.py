"""What a run comes to a place of the program from: a script, whoever loads a file, or nobody in the program."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import libcst as cst

from codemods.api import Context

_DEPTH = 5
"""Callers that are followed."""


class Kind(Enum):
    LOADED = "whoever loads a file"
    SCRIPT = "the file as a script"
    OUTSIDE = "nobody in the program"


@dataclass(frozen=True)
class Start:
    file: Context
    kind: Kind
    function: cst.FunctionDef | None = None
    """The one that nobody calls."""

    @property
    def is_test(self) -> bool:
        """Whether it is a script of its own: what a test calls is for this test alone."""
        return self.kind is Kind.OUTSIDE and self.file.path.name.startswith("test_")


def starts(ctx: Context, node: cst.CSTNode, depth: int = _DEPTH) -> list[Start]:
    """What comes to a place first."""
    function = ctx.scope(node)
    if isinstance(function, cst.FunctionDef):
        callers = ctx.callers(node) if depth else ()
        if not callers and depth and isinstance(ctx.scope(function), cst.FunctionDef):
            return starts(ctx, function, depth - 1)  # it is handed on to what calls it later
        found = [each for where, call in callers for each in starts(where, call, depth - 1)]
        return found or [Start(ctx, Kind.OUTSIDE, function)]
    tests = (outer.test for outer in ctx.ancestors(node) if isinstance(outer, cst.If))
    is_script = any(isinstance(each, cst.Name) and each.value == "__name__" for t in tests for each in ctx.inside(t))
    return [Start(ctx, Kind.SCRIPT if is_script else Kind.LOADED)]
