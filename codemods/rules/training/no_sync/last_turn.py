"""Whether the last turn of a loop is one on which a condition holds."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context


def holds_on_last_turn(condition: str, at: cst.CSTNode, loop: cst.For, ctx: Context) -> bool:
    """Whether a condition of a statement in a loop, without holes, is seen to hold when the loop runs last."""
    turns = _turns(loop, ctx)
    if turns is None:
        return False
    index, count = turns
    last = [f"{index}=={count}-1", f"{index}>={count}-1", f"{index}+1=={count}", f"{index}+1>={count}"]
    if count.isdigit():
        last += [f"{index}=={int(count) - 1}", f"{index}>={int(count) - 1}"]
    for part in _alternatives(cst.parse_expression(_resolved(condition, at, ctx))):
        text = "".join(cst.Module([]).code_for_node(part.with_changes(lpar=(), rpar=())).split())
        if text.replace(f"({index}+1)", f"{index}+1").replace(f"({count}-1)", f"{count}-1") in last:
            return True
    return False


def _turns(loop: cst.For, ctx: Context) -> tuple[str, str] | None:
    """The index and the number of turns of `for i in range(n)` and `for i, x in enumerate(xs)`."""
    call, target = loop.iter, loop.target
    if not isinstance(call, cst.Call) or len(call.args) != 1 or call.args[0].keyword is not None:
        return None
    argument = "".join(ctx.code(call.args[0]).split())
    if ctx.code(call.func) == "range" and isinstance(target, cst.Name):
        return target.value, argument
    if ctx.code(call.func) == "enumerate" and isinstance(target, cst.Tuple):
        return ctx.code(target.elements[0].value), f"len({argument})"
    return None


def _alternatives(condition: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """`a` and `b` of `a or b`."""
    if isinstance(condition, cst.BooleanOperation) and isinstance(condition.operator, cst.Or):
        yield from _alternatives(condition.left)
        yield from _alternatives(condition.right)
    else:
        yield condition


def _resolved(condition: str, at: cst.CSTNode, ctx: Context) -> str:
    """The condition itself, or what the name it consists of was set to in the same loop."""
    if not condition.isidentifier():
        return condition
    names = [node for node in ctx.inside(at) if isinstance(node, cst.Name) and node.value == condition]
    origins = ctx.origins(names[0]) if names else []
    if len(origins) == 1 and origins[0].node is not None and origins[0].file is ctx:
        return ctx.code(origins[0].node)
    return condition
