"""Whether the weights of the wrapped model may be channels_last, which FSDP1 took and `fully_shard` does not."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.places import base, bound

_MODULES = re.compile(r"modules|children|layers|blocks|models?\b")
_FOLLOWED = 3
"""Over how many assignments a name is followed to a loop."""


def may_be_channels_last(ctx: Context) -> bool:
    """Whether anything but a batch is put into a memory format. Inputs can keep theirs."""
    if not ctx.mentions("channels_last"):
        return False
    calls = [(where, call) for where, call in ctx.passing("memory_format") if isinstance(call.func, cst.Attribute)]
    return any(
        call.func.attr.value == "to" and not _is_tensor(where, call.func.value)
        for where, call in calls
        if isinstance(call.func, cst.Attribute)
    )


def _is_tensor(ctx: Context, node: cst.BaseExpression, depth: int = _FOLLOWED) -> bool:
    """What a loop over data gives, what `forward` is given, and what a function of torch makes."""
    while isinstance(node, (cst.Attribute, cst.Subscript)):
        node = node.value
    if isinstance(node, cst.Call):
        name = (ctx.dotted(node.func) or "").removeprefix("torch.")
        if name.islower() and "." not in name:
            return bool(name)
        if isinstance(node.func, cst.Attribute) and ctx.dotted(node.func) is None:
            return _is_tensor(ctx, node.func.value, depth)
        return isinstance(node.func, cst.Name) and node.func.value in {"next", "iter"}
    if not isinstance(node, cst.Name) or not depth:
        return False
    scope = ctx.scope(node)
    if isinstance(scope, cst.FunctionDef) and scope.name.value == "forward":
        return node.value in {param.name.value for param in scope.params.params[1:]}
    values = list(_values(ctx, scope, node.value))
    own = [value for value in values if value is not None and base(value) != node.value]
    is_turn = None in values
    return is_turn or (bool(own) and all(_is_tensor(ctx, v, depth - 1) for v in own))


def _values(ctx: Context, scope: cst.CSTNode, name: str) -> Iterator[cst.BaseExpression | None]:
    """What a scope binds a name to; None for the turns of a loop."""
    loops: list[cst.For | cst.CompFor] = [*ctx.nodes(cst.For), *ctx.nodes(cst.CompFor)]
    for loop in loops:
        if ctx.scope(loop) is scope and name in bound(loop.target) and not _MODULES.search(ctx.code(loop.iter)):
            yield None
    for node in ctx.nodes(cst.Assign):
        if ctx.scope(node) is scope and any(name in bound(target.target) for target in node.targets):
            yield node.value
