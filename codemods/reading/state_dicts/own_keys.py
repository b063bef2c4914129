"""Keys that a program adds to the state dicts of its modules: by a hook, or by a `state_dict` of a class's own.

Torch's functions look up each key as a parameter or a buffer, and raise for others, of a plain model as well.
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import enclosing
from codemods.reading.code.places import bound
from codemods.reading.code.shapes import called_on
from codemods.reading.code.words import words
from codemods.reading.models.parts import NO_MODELS
from codemods.reading.models.plain_objects import is_plain_class

_HOOKS = ("_register_state_dict_hook", "_register_state_dict_post_hook", "register_state_dict_post_hook")
_METHOD = "state_dict"


def adds_keys(ctx: Context) -> bool:
    """Whether the state dict of a module may hold what is no parameter and no buffer of it."""
    return any(_registers(where, name) for name in _HOOKS for where in ctx.files(name)) or (
        ctx.defines(_METHOD) and any(_extends(where) for where in ctx.files(_METHOD))
    )


def _registers(ctx: Context, name: str) -> bool:
    """Whether a hook is registered that is not seen to leave the keys alone."""
    return any(
        isinstance(call.func, cst.Attribute)
        and call.func.attr.value == name
        and bool(call.args)
        and any(_may_store(origin.node, origin.file) for origin in ctx.origins(call.args[0].value))
        for call in ctx.nodes(cst.Call)
    )


def _may_store(hook: cst.CSTNode | None, ctx: Context) -> bool:
    if isinstance(hook, cst.Call) and ctx.dotted(hook.func) == "functools.partial" and hook.args:
        return any(_may_store(origin.node, origin.file) for origin in ctx.origins(hook.args[0].value))
    return not isinstance(hook, (cst.FunctionDef, cst.Lambda)) or stores(hook, ctx)


def _extends(ctx: Context) -> bool:
    """Whether a class puts something into what `super().state_dict(...)` gave."""
    methods = (f for f in ctx.nodes(cst.FunctionDef) if f.name.value == _METHOD and _may_be_of_module(f, ctx))
    return any(stores(method, ctx) and any(_is_inherited(node) for node in ctx.inside(method)) for method in methods)


def _may_be_of_module(method: cst.FunctionDef, ctx: Context) -> bool:
    owner = enclosing(ctx, method, cst.ClassDef)
    return owner is not None and not is_plain_class(ctx, owner) and not words(owner.name.value) & NO_MODELS


def _is_inherited(node: cst.CSTNode) -> bool:
    """`super().state_dict`."""
    if not isinstance(node, cst.Attribute) or node.attr.value != _METHOD or not isinstance(node.value, cst.Call):
        return False
    return isinstance(node.value.func, cst.Name) and node.value.func.value == "super"


def stores(function: cst.CSTNode, ctx: Context) -> bool:
    """`destination[key] = value`, and `destination.update(...)`."""
    return any(
        (isinstance(node, cst.AssignTarget) and _is_new(node.target, ctx))
        or called_on(node, "update", "setdefault") is not None
        for node in ctx.inside(function)
    )


def _is_new(target: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a key may be new: not `state[key] = value.half()` in a loop over `state.items()`."""
    if not isinstance(target, cst.Subscript):
        return False
    index = target.slice[0].slice if len(target.slice) == 1 else None
    key, table = index.value if isinstance(index, cst.Index) else None, ctx.code(target.value)
    loops = [outer for outer in ctx.ancestors(target) if isinstance(outer, cst.For)]
    return not any(
        isinstance(key, cst.Name)
        and key.value in bound(loop.target)
        and any(ctx.code(node) == table for node in ctx.inside(loop.iter) if isinstance(node, cst.Name))
        for loop in loops
    )
