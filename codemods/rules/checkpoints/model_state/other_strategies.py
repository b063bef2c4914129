"""Classes that do for other models what the class that wraps does for FSDP's: `class LocalBackend` beside
`class FSDPBackend`.
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import enclosing
from codemods.reading.code.shapes import called_on
from codemods.reading.models.class_layout import with_bases


def is_for_other_models(node: cst.CSTNode, ctx: Context) -> bool:
    """Whether a method is of a class that prepares its models itself, and each class that wraps has the same method, or
    that which calls it.

    That is a class beside, with a method of the same name to prepare a model, or an heir.
    """
    method, owner = enclosing(ctx, node, cst.FunctionDef), enclosing(ctx, node, cst.ClassDef)
    if method is None or owner is None:
        return False
    callers = [enclosing(where, call, cst.FunctionDef) for where, call in ctx.callers(node)]
    return _has_its_own(method, owner, ctx) or (
        bool(callers) and all(each is not None and _has_its_own(each, owner, ctx) for each in callers)
    )


def _has_its_own(method: cst.FunctionDef, owner: cst.ClassDef, ctx: Context) -> bool:
    """Whether it is a method of the class that each class that wraps has as well."""
    wraps = ctx.wrapping.calls(ctx.path) if method in owner.body.body else ()
    return bool(wraps) and all(_does_the_same(where, wrap, method.name.value, owner, ctx) for where, wrap in wraps)


def _does_the_same(where: Context, wrap: cst.Call, name: str, owner: cst.ClassDef, ctx: Context) -> bool:
    prepares, other = enclosing(where, wrap, cst.FunctionDef), enclosing(where, wrap, cst.ClassDef)
    if prepares is None or other is None or other is owner:
        return False
    same = _methods(other).get(name)
    if same is None or any(called_on(each, name) is not None and _is_super(each) for each in where.calls(same)):
        return False
    if any(each is owner for _, each in with_bases(where, other)):
        return True
    is_heir = any(each is other for _, each in with_bases(ctx, owner))
    return not is_heir and prepares.name.value in _methods(owner)


def _is_super(call: cst.Call) -> bool:
    """`super().save(model)`"""
    receiver = call.func.value if isinstance(call.func, cst.Attribute) else None
    return isinstance(receiver, cst.Call) and isinstance(receiver.func, cst.Name) and receiver.func.value == "super"


def _methods(owner: cst.ClassDef) -> dict[str, cst.FunctionDef]:
    return {each.name.value: each for each in owner.body.body if isinstance(each, cst.FunctionDef)}
