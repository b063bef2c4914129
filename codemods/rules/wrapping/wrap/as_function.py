"""`partial(FSDP, …)` as a function: what it was given when it was made is read when it is called."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Edit, NotStatic
from codemods.reading.enclosing import enclosing

from .draft import Draft
from .emit import body_of_function, joined_lines, line_indent

_LOOPS = (cst.For, cst.While, cst.BaseComp, cst.Lambda)


def refuse_rebound(ctx: Context, call: cst.Call) -> None:
    """Raise NotStatic where a function in the place of `partial(…)` may read other values than it was given."""
    line = enclosing(ctx, call, cst.SimpleStatementLine)
    statement = line.body[0] if line is not None and len(line.body) == 1 else None
    if _name(statement, call) is None:
        raise NotStatic("the constructor is passed on as a value, in an expression")
    scope = ctx.scope(call)
    if isinstance(scope, cst.ClassDef) or any(isinstance(node, _LOOPS) for node in ctx.ancestors(call)):
        raise NotStatic("the constructor is passed on as a value, from a loop or a class")
    read = {node.value for node in ctx.inside(call) if isinstance(node, cst.Name)}
    below = ctx.span(call)[1]
    for node in ctx.inside(scope):
        bound = isinstance(node, cst.Name) and node.value in read and ctx.span(node)[0] >= below
        if bound and isinstance(ctx.parent(node), (cst.AssignTarget, cst.AugAssign, cst.For, cst.Tuple, cst.NamedExpr)):
            raise NotStatic("the constructor is passed on as a value, with a name that is bound again")


def _name(statement: cst.CSTNode | None, call: cst.Call) -> str | None:
    """The name that holds the partial; nothing where it is returned; None for anything else."""
    if isinstance(statement, cst.Return) and statement.value is call:
        return ""
    if isinstance(statement, cst.Assign) and statement.value is call and len(statement.targets) == 1:
        target = statement.targets[0].target
        return target.value if isinstance(target, cst.Name) else None
    return None


def function_edit(made: Draft) -> Edit:
    """`def wrapper(model): …` in the place of the statement."""
    ctx = made.file
    line = enclosing(ctx, made.call, cst.SimpleStatementLine)
    assert line is not None
    indent = line_indent(made, line)
    held = _name(line.body[0], made.call)
    name = held or made.fresh("shard", "shard_module")
    lines = [f"def {name}({made.model}):", *(f"    {each}" for each in body_of_function(made, indent))]
    start, end = ctx.span(line.body[0])
    first, last = ctx.whole_lines(line)
    if not ctx.text[:first].endswith(("\n" + ctx.newline, ":" + ctx.newline)) and first:
        lines.insert(0, "")
    if not held:
        lines += ["", f"return {name}"]
    elif ctx.text[last:].strip() and not ctx.text[last:].startswith(ctx.newline):
        lines.append("")
    if isinstance(ctx.scope(made.call), cst.Module):
        lines = ["", *lines] if lines[0] == "" else lines
    return Edit(start, end, joined_lines(lines, indent, ctx))
