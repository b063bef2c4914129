"""Finding the statements that only a removed construct needed."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import enclosing
from codemods.reading.code.shapes import alone


def assignment_only_for(ctx: Context, made: cst.CSTNode, expected: Callable[[cst.Name], bool]) -> cst.CSTNode | None:
    """The statement `name = <made>`, when every use of the name is an expected one and no other file sees it."""
    statement = enclosing(ctx, made, cst.SimpleStatementLine)
    assignment = alone(statement)
    if not isinstance(assignment, cst.Assign) or assignment.value is not made:
        return None
    uses = ctx.uses(assignment)
    at_top = isinstance(ctx.scope(assignment), cst.Module)
    if at_top and any(ctx.is_read_elsewhere(use.value) for use in uses):
        return None
    return statement if uses and all(expected(use) for use in uses) else None


def states_made_for(ctx: Context, value: cst.BaseExpression, owner: str) -> list[cst.CSTNode]:
    """The statements `value = owner.state_dict()` that made a value for this use alone."""
    if not isinstance(value, cst.Name):
        return []
    made = (origin.node for origin in ctx.origins(value) if origin.file is ctx and isinstance(origin.node, cst.Call))
    found = [
        assignment_only_for(ctx, call, lambda use: use is value)
        for call in made
        if ctx.code(call) == f"{owner}.state_dict()"
    ]
    return [statement for statement in found if statement is not None]
