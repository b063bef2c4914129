"""Why a rewritten program stops: its traceback goes through what `rewrite` left to a person."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from codemods.api import Finding, Level

_FRAME = re.compile(r'File "(.+?)", line (\d+)')
_COMMENT_LINES = 1
"""A comment that says what is left stands above its statement."""


def left_there(traceback: str, findings: Iterable[Finding], root: Path) -> tuple[str, Finding] | None:
    """The innermost frame where something is left to do, as `file:line`, and what. Paths are taken below `root`, for
    the run was in a copy of it."""
    left = [finding for finding in findings if finding.level is Level.MANUAL and finding.path.is_relative_to(root)]
    for file, number in reversed(_FRAME.findall(traceback)):
        for finding in left:
            path, line = finding.path.relative_to(root), int(number)
            is_file = Path(file).parts[-len(path.parts) :] == path.parts
            if is_file and 0 <= line - finding.line <= _COMMENT_LINES:
                return f"{path}:{line}", finding
    return None
