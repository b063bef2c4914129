"""Methods that tie the weights of the module they are called on: `self.embed.weight = self.head.weight`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.enclosing import enclosing, is_self
from codemods.reading.prewrap.moving import KEEPS_PARAMETERS

_OF_TRANSFORMERS = "tie_weights"


def ties_weights(call: cst.Call, ctx: Context) -> bool:
    """Whether a call of a module's method runs one that ties weights: of any class, since the module's is not told."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value in KEEPS_PARAMETERS:
        return False
    name = call.func.attr.value
    methods = [(at, each) for at in ctx.files(name) for each in at.nodes(cst.FunctionDef) if each.name.value == name]
    own = [(at, each) for at, each in methods if enclosing(at, each, cst.ClassDef) is not None]
    return any(_ties(at, each, set()) for at, each in own) or (name == _OF_TRANSFORMERS and not own)


def tying_names(ctx: Context) -> frozenset[str]:
    """The names of all methods that can tie weights, in whatever class: few calls have one of them."""
    found: set[str] = {_OF_TRANSFORMERS}
    asked = [
        (where, node)
        for where, node in ctx.attributes("weight")
        if isinstance(where.parent(node), cst.AssignTarget) and _is_own_weight(where, node)
    ]
    for where, node in asked:  # grows
        method = enclosing(where, node, cst.FunctionDef)
        if method is not None and method.name.value not in found:
            found.add(method.name.value)
            asked += [each for each in ctx.attributes(method.name.value) if is_self(each[1].value, each[0])]
    return frozenset(found)


def is_weight(node: cst.BaseExpression) -> bool:
    """`module.weight`."""
    return isinstance(node, cst.Attribute) and node.attr.value == "weight"


def _ties(ctx: Context, method: cst.FunctionDef, seen: set[cst.FunctionDef]) -> bool:
    if method in seen:
        return False
    seen.add(method)
    for node in ctx.inside(method):
        if isinstance(node, cst.Assign) and _is_own_weight(ctx, node.targets[0].target):
            if _is_own_weight(ctx, node.value):
                return True
    return any(_ties(ctx, each, seen) for each in _own_methods_called(ctx, method))


def _is_own_weight(ctx: Context, node: cst.BaseExpression) -> bool:
    if not is_weight(node):
        return False
    while isinstance(node, (cst.Attribute, cst.Subscript)):
        node = node.value
    return is_self(node, ctx)


def _own_methods_called(ctx: Context, method: cst.FunctionDef) -> Iterator[cst.FunctionDef]:
    owner = enclosing(ctx, method, cst.ClassDef)
    called = {
        node.func.attr.value
        for node in ctx.inside(method)
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and is_self(node.func.value, ctx)
    }
    for each in owner.body.body if owner is not None else ():
        if isinstance(each, cst.FunctionDef) and each.name.value in called:
            yield each
