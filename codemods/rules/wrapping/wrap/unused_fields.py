"""Fields of a dataclass that only a dropped argument reads: `limit_all_gathers: bool = True` goes with it."""

from __future__ import annotations

import libcst as cst

from codemods.reading.attribute_stores import stored
from codemods.reading.layout import removal

from .draft import Draft
from .in_place import is_given


def drop_field(argument: str, value: cst.BaseExpression, draft: Draft) -> None:
    """Take away the field that an argument is read from, where its default is all that the program stores in it."""
    if not isinstance(value, cst.Attribute):
        return
    seen = stored(draft.file, value.attr.value)
    if seen is None or [read for _, read in seen.reads] != [value] or not is_given(draft.file, value, argument):
        return
    fields = [(where, where.parent(target)) for where, target in seen.targets]
    if not all(isinstance(field, cst.AnnAssign) and isinstance(field.value, cst.Name) for _, field in fields):
        return
    defaults = {field.value for _, field in fields if isinstance(field, cst.AnnAssign) and field.value is not None}
    lines = [(where, where.parent(field)) for where, field in fields if field is not None]
    if defaults & draft.left or not all(
        isinstance(where.scope(field), cst.ClassDef) for where, field in fields if field
    ):
        return
    if any(not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1 for _, line in lines):
        return
    draft.definitions |= defaults
    draft.edits += [(where, removal(where, line)) for where, line in lines if line is not None]
