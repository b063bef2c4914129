"""Finding the statements that only a removed construct needed."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from codemods.reading.enclosing import enclosing
from codemods.vocabulary import File


def assignment_only_for(file: File, made: cst.CSTNode, expected: Callable[[cst.Name], bool]) -> cst.CSTNode | None:
    """The statement `name = <made>`, when every use of the name is an expected one and no other file sees it."""
    statement = enclosing(file, made, cst.SimpleStatementLine)
    if statement is None or len(statement.body) != 1:
        return None
    assignment = statement.body[0]
    if not isinstance(assignment, (cst.Assign, cst.AnnAssign)) or assignment.value is not made:
        return None
    uses = file.uses(assignment)
    at_top = isinstance(file.scope(statement), cst.Module)
    if at_top and any(file.mentions_elsewhere(use.value) for use in uses):
        return None
    return statement if uses and all(expected(use) for use in uses) else None
