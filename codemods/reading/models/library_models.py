"""Models that an object of a library holds, and that nothing of the program wraps: `state.model` of `state: State`."""

from __future__ import annotations

import sys

import libcst as cst

from codemods.api import Context
from codemods.reading.code.scripts import is_test
from codemods.reading.code.shapes import front, parameters

NO_WRAPPERS = frozenset({*sys.stdlib_module_names, "torch"})
"""What shards no model by itself."""


def library_around(model: cst.BaseExpression, ctx: Context) -> str:
    """The library whose object has a model; nothing where a constructor call may have wrapped it, a test's aside."""
    owner = front(model)
    function = ctx.scope(owner)
    if owner is model or not isinstance(owner, cst.Name) or not isinstance(function, cst.FunctionDef):
        return ""
    if any(where is ctx or not is_test(where.path) for where, _ in ctx.wrapping.calls(ctx.path)):
        return ""
    named = [each.annotation for each in parameters(function) if each.name.value == owner.value]
    said = [annotation.annotation for annotation in named if annotation is not None]
    library = (ctx.dotted(said[0]) or "").partition(".")[0] if said else ""
    return "" if library in NO_WRAPPERS else library
