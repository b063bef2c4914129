"""Files that are started."""

from __future__ import annotations

from pathlib import Path

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import enclosing
from codemods.reading.code.places import place
from codemods.reading.code.shapes import parameter_names


def is_script(ctx: Context) -> bool:
    """Whether a file is started: it says `if __name__ == "__main__":`."""
    tests = (line.test for line in ctx.top.body if isinstance(line, cst.If))
    asked = (test.left for test in tests if isinstance(test, cst.Comparison))
    return any(isinstance(name, cst.Name) and name.value == "__name__" for name in asked)


def may_come_from_others(value: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a function of a module is given what another file makes: a script that wraps nothing may call it too, and
    is not read.
    """
    function = enclosing(ctx, value, cst.FunctionDef)
    if ctx.options.sees_all or is_script(ctx) or function is None or place(value) not in parameter_names(function):
        return False
    return any(origin.file.path != ctx.path for origin in ctx.origins(value))


def is_test(path: Path) -> bool:
    """Whether pytest imports a file by itself."""
    return path.stem.startswith("test_") or path.stem.endswith("_test")
