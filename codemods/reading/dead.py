"""Finding the statements that only a removed construct needed."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from codemods.api import Context
from codemods.reading.enclosing import enclosing


def assignment_only_for(ctx: Context, made: cst.CSTNode, expected: Callable[[cst.Name], bool]) -> cst.CSTNode | None:
    """The statement `name = <made>`, when every use of the name is an expected one and no other file sees it."""
    statement = enclosing(ctx, made, cst.SimpleStatementLine)
    if statement is None or len(statement.body) != 1:
        return None
    assignment = statement.body[0]
    if not isinstance(assignment, (cst.Assign, cst.AnnAssign)) or assignment.value is not made:
        return None
    uses = ctx.uses(assignment)
    at_top = isinstance(ctx.scope(statement), cst.Module)
    if at_top and any(ctx.is_read_elsewhere(use.value) for use in uses):
        return None
    return statement if uses and all(expected(use) for use in uses) else None
