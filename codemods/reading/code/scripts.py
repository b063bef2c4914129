"""Files that are started."""

from __future__ import annotations

from pathlib import Path

import libcst as cst

from codemods.api import Context


def is_script(ctx: Context) -> bool:
    """Whether a file is started: it says `if __name__ == "__main__":`."""
    tests = (line.test for line in ctx.top.body if isinstance(line, cst.If))
    asked = (test.left for test in tests if isinstance(test, cst.Comparison))
    return any(isinstance(name, cst.Name) and name.value == "__name__" for name in asked)


def is_test(path: Path) -> bool:
    """Whether pytest imports a file by itself."""
    return path.stem.startswith("test_") or path.stem.endswith("_test")
