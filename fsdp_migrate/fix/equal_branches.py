"""`if kind == "full": mesh = None` above an `else:` that says the same goes, where the edits wrote both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from codemods.api import Context, Edit, Fix

from ..edit.apply import Overlap, part
from .collect import Collected

_LITERALS = (cst.SimpleString, cst.Integer)


def without_equal_branches(file: Context, made: Collected) -> Iterator[Fix]:
    for first in file.nodes(cst.If):
        if isinstance(file.parent(first), cst.If):
            continue
        branches, last = _chain(first)
        usual = _only_line(last, file, made) if last is not None else ""
        asked = [_asked(branch.test, file) for branch in branches]
        if not usual or not _are_apart(asked):
            continue
        kept = [branch for branch in branches if _is_told(branch, file) or _only_line(branch, file, made) != usual]
        if kept and len(kept) < len(branches):
            yield Fix(list(_edits(branches, kept, file)))


def _chain(first: cst.If) -> tuple[list[cst.If], cst.Else | None]:
    branches = [first]
    while isinstance(branches[-1].orelse, cst.If):
        branches.append(branches[-1].orelse)
    return branches, branches[-1].orelse


def _edits(branches: Sequence[cst.If], kept: Sequence[cst.If], file: Context) -> Iterator[Edit]:
    first = branches.index(kept[0])
    if first:
        yield Edit(file.span(branches[0])[0], file.span(kept[0].test)[0], "if ")
    for branch in branches[first:]:
        if branch not in kept and branch.orelse is not None:
            yield Edit(file.whole_lines(branch)[0], file.whole_lines(branch.orelse)[0], "")


def _is_told(branch: cst.If, file: Context) -> bool:
    """Whether a comment stands in a branch, or above the next one."""
    behind = branch.orelse
    end = file.span(behind.test if isinstance(behind, cst.If) else behind.body)[0] if behind is not None else 0
    return "#" in file.text[file.span(branch.test)[1] : end]


def _asked(test: cst.BaseExpression, file: Context) -> tuple[str, object] | None:
    """What `kind == "full"` asks about, and for which literal."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return None
    (compared,) = test.comparisons
    if not isinstance(compared.operator, cst.Equal) or not isinstance(compared.comparator, _LITERALS):
        return None
    is_read = isinstance(test.left, (cst.Name, cst.Attribute))
    return (file.code(test.left), compared.comparator.evaluated_value) if is_read else None


def _are_apart(asked: Sequence[tuple[str, object] | None]) -> bool:
    """Whether at most one of the tests holds: they ask for different values of one thing."""
    known = [each for each in asked if each is not None]
    names, values = {name for name, _ in known}, {value for _, value in known}
    return len(known) == len(asked) == len(values) and len(names) == 1


def _only_line(branch: cst.If | cst.Else, file: Context, made: Collected) -> str:
    """The assignment that a branch comes to by the edits; "" where it holds more, or none of theirs."""
    line = branch.body.body[0] if len(branch.body.body) == 1 else None
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1 or not isinstance(line.body[0], cst.Assign):
        return ""
    try:
        text = part(file.path, file.text, made.wanted[file.path].edits, *file.span(line.body[0]))
    except (Overlap, SyntaxError):
        return ""
    return text if text != file.code(line.body[0]) and "\n" not in text else ""
