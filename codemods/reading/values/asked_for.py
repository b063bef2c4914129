"""Functions that a loop asks in each of its turns, `if has_decay(name, p):`, and what they call its variables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context
from codemods.reading.code.arguments import by_parameter

_TENSORS = frozenset({"data", "grad"})
_DEPTH = 2
"""How many functions are followed that ask another one."""


@dataclass(frozen=True)
class Asked:
    """A function that is given variables of a loop."""

    file: Context
    body: cst.CSTNode
    names: frozenset[str]
    """What it calls them, and what it makes of them."""
    call: cst.Call
    """Where the loop calls it, or one that asks it in turn."""

    def is_about(self, node: cst.CSTNode) -> bool:
        """Whether a node of the function speaks of them."""
        named = (each for each in self.file.inside(node) if isinstance(each, cst.Name))
        return any(each.value in self.names for each in named)


def asked_for(
    body: cst.CSTNode, names: Collection[str], ctx: Context, depth: int = _DEPTH, first: cst.Call | None = None
) -> Iterator[Asked]:
    """The functions and lambdas of the program that code calls with one of these variables."""
    for call in ctx.inside(body):
        if not isinstance(call, cst.Call) or not any(_is_one(argument.value, names) for argument in call.args):
            continue
        for where, params, inner in _run(call, ctx):
            given = by_parameter(call.args, params) or {}
            own = {name for name, argument in given.items() if _is_one(argument.value, names)}
            if own:
                own |= made_of(own, inner, where)
                yield Asked(where, inner, frozenset(own), first or call)
                if depth > 1:
                    yield from asked_for(inner, own, where, depth - 1, first or call)


def _is_one(value: cst.BaseExpression, names: Collection[str]) -> bool:
    """`p`, and `p.grad` and `p.data` of it."""
    while isinstance(value, cst.Attribute) and value.attr.value in _TENSORS:
        value = value.value
    return isinstance(value, cst.Name) and value.value in names


def _run(call: cst.Call, ctx: Context) -> Iterator[tuple[Context, Sequence[str], cst.CSTNode]]:
    """The parameters and the body of what a call runs."""
    for where, function in ctx.runs(call):
        names = [each.name.value for each in (*function.params.params, *function.params.kwonly_params)]
        is_static = any(where.code(each.decorator) == "staticmethod" for each in function.decorators)
        is_bound = isinstance(call.func, cst.Attribute) and isinstance(where.scope(function), cst.ClassDef)
        yield where, names[1:] if is_bound and not is_static else names, function.body
    for origin in ctx.origins(call.func):
        if isinstance(origin.node, cst.Lambda):
            yield origin.file, [each.name.value for each in origin.node.params.params], origin.node.body


def made_of(names: Collection[str], body: cst.CSTNode, ctx: Context) -> set[str]:
    """`parts` of `parts = name.split(".")`."""
    made = set[str]()
    for assigned in ctx.inside(body):
        if isinstance(assigned, cst.Assign):
            read = (node for node in ctx.inside(assigned.value) if isinstance(node, cst.Name))
            if any(node.value in names or node.value in made for node in read):
                made |= {each.target.value for each in assigned.targets if isinstance(each.target, cst.Name)}
    return made
