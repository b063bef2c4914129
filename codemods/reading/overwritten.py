"""What a call gives, and each run that wraps puts something else in the place of before it is read.

`groups = by_dimensions(model)`, then `if args.fsdp: groups = model.parameters()`.
"""

from __future__ import annotations

from itertools import dropwhile, islice

import libcst as cst

from codemods.api import Context


def is_overwritten(ctx: Context, call: cst.Call) -> bool:
    """Whether the variable that takes what a call gives is bound anew, by the next statement that names it."""
    assignment = ctx.parent(call)
    line = ctx.parent(assignment) if isinstance(assignment, cst.Assign) else None
    name = _bound(line) if line is not None else None
    block = ctx.parent(line) if line is not None else None
    if name is None or not isinstance(block, (cst.IndentedBlock, cst.Module)):
        return False
    below = islice(dropwhile(lambda each: each is not line, block.body), 1, None)
    following = next((each for each in below if _names(ctx, each, name)), None)
    if not isinstance(following, cst.If) or not ctx.is_met_where_wrapped(following.test):
        return False
    first = next((each for each in following.body.body if _names(ctx, each, name)), None)
    return first is not None and _bound(first) == name and _names(ctx, first, name) == 1


def _bound(line: cst.CSTNode) -> str | None:
    """`name` of `name = …`, alone on its line."""
    assignment = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
    if not isinstance(assignment, cst.Assign) or len(assignment.targets) != 1:
        return None
    target = assignment.targets[0].target
    return target.value if isinstance(target, cst.Name) else None


def _names(ctx: Context, statement: cst.CSTNode, name: str) -> int:
    nodes = [node for node in ctx.inside(statement) if isinstance(node, cst.Name) and node.value == name]
    return sum(getattr(ctx.parent(node), "attr", None) is not node for node in nodes)
