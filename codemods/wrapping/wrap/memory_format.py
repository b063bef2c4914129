"""Whether the weights of the wrapped model may be channels_last, which FSDP1 took and `fully_shard` does not."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from codemods.reading.places import base, bound
from codemods.vocabulary import File

_MODULES = re.compile(r"modules|children|layers|blocks|models?\b")
_FOLLOWED = 3
"""Over how many assignments a name is followed to a loop."""


def may_be_channels_last(file: File) -> bool:
    """Whether anything but a batch is put into a memory format. Inputs can keep theirs."""
    if not file.mentions("channels_last"):
        return False
    calls = [(where, call) for where, call in file.passing("memory_format") if isinstance(call.func, cst.Attribute)]
    return any(
        call.func.attr.value == "to" and not _is_tensor(where, call.func.value)
        for where, call in calls
        if isinstance(call.func, cst.Attribute)
    )


def _is_tensor(file: File, node: cst.BaseExpression, depth: int = _FOLLOWED) -> bool:
    """What a loop over data gives, what `forward` is given, and what a function of torch makes."""
    while isinstance(node, (cst.Attribute, cst.Subscript)):
        node = node.value
    if isinstance(node, cst.Call):
        name = (file.dotted(node.func) or "").removeprefix("torch.")
        if name.islower() and "." not in name:
            return bool(name)
        if isinstance(node.func, cst.Attribute) and file.dotted(node.func) is None:
            return _is_tensor(file, node.func.value, depth)
        return isinstance(node.func, cst.Name) and node.func.value in {"next", "iter"}
    if not isinstance(node, cst.Name) or not depth:
        return False
    scope = file.scope(node)
    if isinstance(scope, cst.FunctionDef) and scope.name.value == "forward":
        return node.value in {param.name.value for param in scope.params.params[1:]}
    values = list(_values(file, scope, node.value))
    own = [value for value in values if value is not None and base(value) != node.value]
    is_turn = None in values
    return is_turn or (bool(own) and all(_is_tensor(file, v, depth - 1) for v in own))


def _values(file: File, scope: cst.CSTNode, name: str) -> Iterator[cst.BaseExpression | None]:
    """What a scope binds a name to; None for the turns of a loop."""
    loops: list[cst.For | cst.CompFor] = [*file.nodes(cst.For), *file.nodes(cst.CompFor)]
    for loop in loops:
        if file.scope(loop) is scope and name in bound(loop.target) and not _MODULES.search(file.code(loop.iter)):
            yield None
    for node in file.nodes(cst.Assign):
        if file.scope(node) is scope and any(name in bound(target.target) for target in node.targets):
            yield node.value
