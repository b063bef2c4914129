"""What a docstring says of a parameter goes with it: its entry under `Args:`, or its `:param name:`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

import libcst as cst

from codemods.api import Context, Edit

_SECTION = re.compile(r"(?:args|arguments|parameters|params|keyword args|keyword arguments):?", re.IGNORECASE)
_HEADER = re.compile(r"[A-Z][\w ]*:|-{3,}")
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:(?!:)")
_FIELD = re.compile(r":(?:param|parameter|arg|argument|type)\s+(?:[^:]*\s)?(\w+)\s*:")


def entry_removals(function: cst.FunctionDef, names: Collection[str], file: Context) -> Iterator[Edit]:
    """Edits that take the entries of parameters away; one that is all of its section stays."""
    docstring = _docstring(function)
    if docstring is None:
        return
    start, end = file.span(docstring)
    first = file.text.rfind("\n", 0, start) + 1
    lines = file.text[first:end].splitlines(keepends=True)
    entries = list(_entries(lines))
    gone = [entry for entry in entries if entry[0] in names]
    if not gone or len({name for name, _, _ in entries} - set(names)) == 0:
        return
    starts = [first]
    for line in lines:
        starts.append(starts[-1] + len(line))
    for _, one, behind in gone:
        yield Edit(starts[one], starts[behind], "")


def _docstring(function: cst.FunctionDef) -> cst.SimpleString | None:
    line = function.body.body[0]
    small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
    return small.value if isinstance(small, cst.Expr) and isinstance(small.value, cst.SimpleString) else None


def _entries(lines: list[str]) -> Iterator[tuple[str, int, int]]:
    """The name of each entry, with its first line and the one behind its last."""
    section = False
    for index, line in enumerate(lines[:-1]):  # the last has the closing quotes
        said = line.strip()
        if index and (_SECTION.fullmatch(said) or _HEADER.fullmatch(said)):
            is_rule = said.startswith("-")  # NumPy's, below the name of the section
            section = _SECTION.fullmatch(lines[index - 1].strip() if is_rule else said) is not None
            continue
        found = _FIELD.match(said) or (_ENTRY.match(said) if section else None)
        if index and found is not None:
            yield found[1], index, _behind(lines, index)


def _behind(lines: list[str], index: int) -> int:
    """The line behind an entry: what is indented deeper belongs to it."""
    margin = _margin(lines[index])
    behind = index + 1
    while behind < len(lines) - 1 and lines[behind].strip() and _margin(lines[behind]) > margin:
        behind += 1
    return behind


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip())
