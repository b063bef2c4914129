"""Why a rewritten program stops: its traceback goes through what `rewrite` left to a person."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from codemods.api import Finding, Level

_FRAME = re.compile(r'File "(.+?)", line (\d+)')
_COMMENT_LINES = 1
"""A comment that says what is left stands above its statement."""


def left_there(traceback: str, findings: Iterable[Finding], root: Path) -> tuple[str, Finding] | None:
    """The innermost frame where something is left to do, as `file:line`, and what: in that line, else in its function.
    Paths are taken below `root`, for the run was in a copy of it."""
    left = [finding for finding in findings if finding.level is Level.MANUAL and finding.path.is_relative_to(root)]
    frames = [(Path(file), int(line)) for file, line in reversed(_FRAME.findall(traceback))]
    return next(_in_lines(frames, left, root), None) or next(_in_functions(frames, left, root), None)


def _in_lines(frames: list[tuple[Path, int]], left: list[Finding], root: Path) -> Iterator[tuple[str, Finding]]:
    for file, line in frames:
        for finding in left:
            if 0 <= line - finding.line <= _COMMENT_LINES and _is_copy(file, finding.path, root):
                yield f"{finding.path.relative_to(root)}:{line}", finding


def _in_functions(frames: list[tuple[Path, int]], left: list[Finding], root: Path) -> Iterator[tuple[str, Finding]]:
    for file, line in frames:
        here = [finding for finding in left if _is_copy(file, finding.path, root)]
        lines = _function(here[0].path, line) if here else range(0)
        yield from ((f"{each.path.relative_to(root)}:{each.line}", each) for each in here if each.line in lines)


def _is_copy(file: Path, path: Path, root: Path) -> bool:
    parts = path.relative_to(root).parts
    return file.parts[-len(parts) :] == parts


def _function(path: Path, line: int) -> range:
    """The lines of the innermost function around a line."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return range(0)
    functions = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    around = [range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in functions]
    return min((lines for lines in around if line in lines), key=len, default=range(0))
