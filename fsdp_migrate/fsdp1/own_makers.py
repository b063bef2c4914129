"""Classes that each make a model in one method and take it back in others: `Single`, `Ddp`, `Fsdp` behind one name.

`model = strategy.setup(net)` and then `strategy.clip(model)`: what comes to `Ddp.clip` was made by `Ddp.setup`.
And what `FsdpTrainer` wraps for itself comes to no method of `Trainer` that it overrides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import libcst as cst

from codemods.api import Context, Origin
from codemods.reading.code.enclosing import enclosing, is_self
from codemods.reading.code.shapes import parameter_names

if TYPE_CHECKING:
    from .program_model import FileContext


def is_made_by_another(file: FileContext, origin: Origin, node: cst.BaseExpression) -> bool:
    """Whether a model is made by another class than that whose method takes it for the parameter that `node` is, or is
    a part of: `model.module`.
    """
    held = node
    while isinstance(node, cst.Attribute):
        held, node = node, node.value
    method, here = _method(file, node), _method(origin.file, origin.node)
    if method is None or here is None or not isinstance(node, cst.Name):
        return False
    (taking, owner), (making, maker) = method, here
    if isinstance(held, cst.Attribute) and is_self(node, file):
        return _is_overridden(origin.file, taking, owner, making, maker)
    if node.value not in parameter_names(taking)[1:] or owner is maker:
        return False
    own, others = _names(owner), _names(maker)
    name = taking.name.value
    makes = {each for each in own & others if each not in {name, "__init__"}}
    if name not in others or making.name.value not in others or _comes_from(owner, maker):
        return False
    if any(isinstance(each, cst.AssignTarget) and file.code(each.target) == node.value for each in file.inside(taking)):
        return False
    given = file.passed_to(taking.body, node.value)
    return bool(given) and all(_comes_back(where, call, value, name, makes) for where, call, value in given)


def _is_overridden(
    ctx: Context, taking: cst.FunctionDef, owner: cst.ClassDef, making: cst.FunctionDef, maker: cst.ClassDef
) -> bool:
    """Whether a class that wraps a model for itself has its own of a method of its base, which it does not ask."""
    name = taking.name.value
    if not _comes_from(maker, owner) or name not in _names(maker):
        return False
    named = (n for n in ctx.inside(maker) if isinstance(n, cst.Attribute) and n.attr.value == name)
    if any(not is_self(each.value, ctx) for each in named):
        return False  # `super().state()`
    if making.name.value == "__init__":
        return True
    callers = ctx.callers(making.body)
    return bool(callers) and all(
        isinstance(call.func, cst.Attribute) and is_self(call.func.value, where) for where, call in callers
    )


def _method(ctx: Context, node: cst.CSTNode | None) -> tuple[cst.FunctionDef, cst.ClassDef] | None:
    function = enclosing(ctx, node, cst.FunctionDef) if node is not None else None
    owner = ctx.scope(function) if isinstance(function, cst.FunctionDef) else None
    return (function, owner) if isinstance(function, cst.FunctionDef) and isinstance(owner, cst.ClassDef) else None


def _names(owner: cst.ClassDef) -> set[str]:
    return {each.name.value for each in owner.body.body if isinstance(each, cst.FunctionDef)}


def _comes_from(owner: cst.ClassDef, other: cst.ClassDef) -> bool:
    """Whether a class names another as a base, so that it may ask it to make the model."""
    return any(isinstance(base.value, cst.Name) and base.value.value == other.name.value for base in owner.bases)


def _comes_back(ctx: Context, call: cst.Call, value: cst.BaseExpression, name: str, makes: set[str]) -> bool:
    """Whether a call hands an object what the same object has made: a method that both classes have."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != name:
        return False
    receiver = call.func.value
    made = list(_made(ctx, value))
    return bool(made) and all(
        isinstance(each, cst.Call)
        and isinstance(each.func, cst.Attribute)
        and each.func.attr.value in makes
        and ctx.code(each.func.value) == ctx.code(receiver)
        and (ctx.same_meaning(each.func.value, call) or _is_set_once(ctx, receiver))
        for each in made
    )


def _is_set_once(ctx: Context, attribute: cst.BaseExpression) -> bool:
    owner = enclosing(ctx, attribute, cst.ClassDef) if isinstance(attribute, cst.Attribute) else None
    if owner is None:
        return False
    stores = [each for each in ctx.inside(owner) if isinstance(each, cst.AssignTarget)]
    return sum(ctx.code(each.target) == ctx.code(attribute) for each in stores) == 1


def _made(ctx: Context, value: cst.BaseExpression) -> Iterator[cst.BaseExpression | None]:
    """What a variable, or an attribute of the same object, is bound to; `model, optimizer = setup(…)` too."""
    text = ctx.code(value)
    place = enclosing(ctx, value, cst.ClassDef) if isinstance(value, cst.Attribute) else ctx.scope(value)
    for statement in ctx.inside(place or ctx.top):
        if isinstance(statement, cst.Assign):
            for target in statement.targets:
                held = target.target
                each = [element.value for element in held.elements] if isinstance(held, cst.Tuple) else [held]
                if text in map(ctx.code, each):
                    yield statement.value
        elif isinstance(statement, (cst.For, cst.NamedExpr)) and ctx.code(statement.target) == text:
            yield getattr(statement, "value", None)
        elif isinstance(statement, cst.Param) and statement.name.value == text:
            yield None
