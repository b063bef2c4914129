"""Contexts that a statement enters: `stack.enter_context(…)`, in the block of `with ExitStack() as stack`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import call_given, named
from codemods.reading.code.shapes import alone, called_on

_KEEPING = frozenset({"callback", "enter_context", "push"})
"""Methods of a stack that leave nothing that was entered."""


class Entered(NamedTuple):
    """A context that holds from a statement on to the end of a block."""

    line: cst.SimpleStatementLine
    block: cst.With
    is_only: bool
    """Whether the stack is there for nothing else."""


def entered(ctx: Context, context: cst.Call) -> Entered | None:
    """By which statement a context is entered; None where it is no such, or something may leave it above the end."""
    entering = call_given(context, ctx)
    stack = called_on(entering, "enter_context")
    statement = ctx.parent(entering) if entering is not None else None
    line = ctx.parent(statement) if isinstance(statement, cst.Expr) else None
    body = ctx.parent(line) if isinstance(line, cst.SimpleStatementLine) and alone(line) is statement else None
    block = ctx.parent(body) if isinstance(body, cst.IndentedBlock) else None
    if not isinstance(stack, cst.Name) or not isinstance(line, cst.SimpleStatementLine):
        return None
    if not isinstance(block, cst.With) or not any(_is_stack(ctx, item, stack.value) for item in block.items):
        return None
    uses = named(ctx, block.body, stack.value)
    if not all(called_on(ctx.parent(ctx.parent(use) or use), *_KEEPING) is use for use in uses):
        return None
    is_only = len(block.items) == len(uses) == 1 and len(named(ctx, ctx.scope(block), stack.value)) == 2
    return Entered(line, block, is_only)


def entered_above(ctx: Context, block: cst.With, node: cst.CSTNode) -> Iterator[cst.Call]:
    """The contexts that statements of a block enter, and that are open at a node further down in it."""
    if not any(item.asname is not None for item in block.items):
        return
    for line in block.body.body:
        if ctx.span(line)[1] > ctx.span(node)[0]:
            return
        statement = alone(line)
        call = statement.value if isinstance(statement, cst.Expr) else None
        if isinstance(call, cst.Call) and called_on(call, "enter_context") is not None and len(call.args) == 1:
            context = call.args[0].value
            if isinstance(context, cst.Call) and entered(ctx, context) is not None:
                yield context


def _is_stack(ctx: Context, item: cst.WithItem, name: str) -> bool:
    target = item.asname.name if item.asname is not None else None
    made = item.item
    is_named = isinstance(target, cst.Name) and target.value == name
    return is_named and isinstance(made, cst.Call) and ctx.dotted(made.func) == "contextlib.ExitStack"
