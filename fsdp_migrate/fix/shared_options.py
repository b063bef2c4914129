"""Options that calls of one block are given the same stand there once: `options = StateDictOptions(...)`."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

import libcst as cst

from codemods.api import Context, Edit
from codemods.reading.code.enclosing import names_around
from codemods.reading.edits.layout import insertion

from .collect import Collected

_CLASS, _NAME = "StateDictOptions", "options"


def share_options(file: Context, made: Collected) -> None:
    """Name what several calls have in common, or take the name that a rule gave it at the head of their block."""
    edits = made.wanted[file.path].edits
    local = next((item.local for item in made.wanted[file.path].imports if item.name == _CLASS), "")
    if not local:
        return
    text = rf"({local}\([^()\0]*\))"
    heads = dict(_heads(file, edits, re.compile(rf"\s*{_NAME} = {text}\s*")))
    named = {file.scope(block) for block in heads}
    told: dict[tuple[cst.CSTNode, str], list[tuple[Edit, cst.CSTNode]]] = defaultdict(list)
    for edit, options, statement in _told(file, edits, re.compile(rf"\b{_NAME}={text}")):
        told[file.parent(statement) or file.top, options].append((edit, statement))
    for (block, options), found in told.items():
        first = found[0][1]
        if heads.get(block) != options:
            if len(found) < 2 or file.scope(first) in named or _NAME in names_around(file, first):
                continue
            named.add(file.scope(first))
            edits[insertion(file, first, [f"{_NAME} = {options}"])] = edits[found[0][0]]
        for edit in dict.fromkeys(edit for edit, _ in found):
            shorter = edit.text.replace(f"{_NAME}={options}", f"{_NAME}={_NAME}")
            edits[replace(edit, text=shorter)] = edits.pop(edit)


def _heads(file: Context, edits: Iterable[Edit], binding: re.Pattern[str]) -> Iterator[tuple[cst.CSTNode, str]]:
    """The bodies of the `with` statements that became `options = ...`, and what of."""
    lines = {edit.start: found[1] for edit in edits if (found := binding.fullmatch(edit.text)) is not None}
    for statement in file.nodes(cst.With) if lines else ():
        start = file.whole_lines(statement)[0]
        if start in lines:
            yield statement.body, lines[start]


def _told(file: Context, edits: Iterable[Edit], given: re.Pattern[str]) -> Iterator[tuple[Edit, str, cst.CSTNode]]:
    """Where a call is given options, in the order of the text: the edit, the options and the statement."""
    statements = file.nodes(cst.SimpleStatementLine)
    starts = [file.span(statement)[0] for statement in statements]
    for edit in sorted(edits):
        statement = statements[max(bisect_right(starts, edit.start) - 1, 0)] if statements else None
        if statement is not None and file.span(statement)[0] <= edit.start <= file.span(statement)[1]:
            for options in given.findall(edit.text):
                yield edit, options, statement
