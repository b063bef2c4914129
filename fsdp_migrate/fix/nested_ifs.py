"""`if rank == 0:` in which the edits left only `if verbose:` becomes `if rank == 0 and verbose:`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from textwrap import dedent

import libcst as cst

from codemods.api import Context, Edit, Fix
from codemods.reading.edits.block_layout import replace_head

from ..edit.apply import Overlap, part
from .collect import Collected

_BINDS_CLOSER = (cst.Attribute, cst.Call, cst.Comparison, cst.Name, cst.Subscript, cst.UnaryOperation)
"""What needs no brackets beside an `and`."""


def merged_ifs(file: Context, made: Collected) -> Iterator[Fix]:
    for outer in file.nodes(cst.If):
        inner = _only_left(outer, file, made)
        if inner is not None:
            behind = file.span(outer.test)[1]
            yield Fix([Edit(behind, behind, f" and {file.quote(inner.test)}"), *replace_head(file, inner)])


def _only_left(outer: cst.If, file: Context, made: Collected) -> cst.If | None:
    """The `if` that is all which the edits left of a block of several statements."""
    inner = [each for each in outer.body.body if isinstance(each, cst.If)]
    if len(inner) != 1 or len(outer.body.body) == 1 or isinstance(file.parent(outer), cst.If):
        return None
    if any(each.orelse or not isinstance(each.test, _BINDS_CLOSER) for each in (outer, *inner)):
        return None
    start, end = file.whole_lines(outer)
    try:
        text = dedent(part(file.path, file.text, made.wanted[file.path].edits, start, end))
        (left,) = ast.parse(text).body
    except (Overlap, SyntaxError, ValueError):
        return None
    if not isinstance(left, ast.If) or len(left.body) != 1 or not isinstance(left.body[0], ast.If):
        return None
    head = text.splitlines()[: left.body[0].lineno - 1]
    return None if any(line.lstrip().startswith("#") for line in head[left.lineno :]) else inner[0]
