"""`with context:` goes where the edits made `context = nullcontext()` of a choice, for this block alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from textwrap import dedent

import libcst as cst

from codemods.api import Context, Fix
from codemods.reading.code.enclosing import bound_once, enclosing
from codemods.reading.code.shapes import alone, only_target
from codemods.reading.edits.block_layout import replace_head
from codemods.reading.edits.layout import removal

from ..edit.apply import Overlap, part
from .collect import Collected

_NOTHING = ("nullcontext()", "contextlib.nullcontext()")


def without_null_contexts(file: Context, made: Collected) -> Iterator[Fix]:
    for block in file.nodes(cst.With) if file.mentions("nullcontext") else ():
        line = _line_of_nothing(block, file, made)
        if line is not None:
            yield Fix([removal(file, line), *replace_head(file, block)])


def _line_of_nothing(block: cst.With, file: Context, made: Collected) -> cst.SimpleStatementLine | None:
    """The statement that makes what a block enters, where the edits left nothing of that."""
    entered = block.items[0]
    if len(block.items) != 1 or entered.asname is not None or not isinstance(entered.item, cst.Name):
        return None
    value = bound_once(file, entered.item)
    line = enclosing(file, value, cst.SimpleStatementLine) if value is not None else None
    statement = alone(line)
    if line is None or value is None or not isinstance(only_target(statement), cst.Name):
        return None
    if file.code(value) in _NOTHING or statement is None or list(file.uses(statement)) != [entered.item]:
        return None
    try:
        text = dedent(part(file.path, file.text, made.wanted[file.path].edits, *file.whole_lines(line)))
        (left,) = ast.parse(text).body
    except (Overlap, SyntaxError, ValueError):
        return None
    return line if isinstance(left, ast.Assign) and ast.unparse(left.value) in _NOTHING else None
