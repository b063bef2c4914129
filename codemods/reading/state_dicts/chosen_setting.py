"""`if full: set_state_dict_type(model, FULL…) else: set_state_dict_type(model, SHARDED…)`, and what is read of the
model behind it: in the same function, or in another method of the object that keeps the model and the condition.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from codemods.api import Context, ModelKind, NotStatic
from codemods.reading.code.enclosing import contains, enclosing, is_self
from codemods.reading.code.shapes import alone, is_attribute, only_target
from codemods.reading.edits.negation import negated
from codemods.reading.state_dicts.by_class import own_arguments, receiver
from codemods.reading.state_dicts.settings import Settings, context_of, settings
from codemods.tables.state_dicts import SET

_ASKS_MORE = (cst.Await, cst.Call, cst.NamedExpr)


@dataclass(frozen=True, slots=True)
class ChosenSetting:
    """What holds where a state dict is read."""

    test: str
    """Whether it is a whole one, as that is asked there."""
    full: Settings
    sets: tuple[cst.Call, ...]
    """The two calls."""


def chosen_setting(read: cst.CSTNode, ctx: Context) -> ChosenSetting | None:
    """What an `if` set for a `model.state_dict()`; None where it is not seen to be the last that did."""
    if not isinstance(read, cst.Call) or not is_attribute(read.func, "state_dict"):
        return None
    model, owner = receiver(read, ctx), enclosing(ctx, read, cst.ClassDef)
    if model is None or own_arguments(read, ctx) or context_of(read, ctx) or ModelKind.DDP in ctx.kinds(model):
        return None
    is_kept = owner is not None and isinstance(model, cst.Attribute) and is_self(model.value, ctx)
    sets = [each for each in ctx.nodes(cst.Call) if ctx.fsdp1(each.func) == SET]
    own = tuple(each for each in sets if not is_kept or enclosing(ctx, each, cst.ClassDef) is owner)
    choice = _choice(own, ctx)
    if choice is None:
        return None
    if ctx.scope(choice) is ctx.scope(read):
        tests = _asked_below(choice, read, model, ctx)
    else:
        tests = _asked_again(choice, owner, model, ctx) if is_kept and owner is not None else None
    return _made(tests, own, model, ctx) if tests is not None else None


def _choice(sets: tuple[cst.Call, ...], ctx: Context) -> cst.If | None:
    """The `if` of which each branch sets a kind, where nothing else does."""
    choice = enclosing(ctx, sets[0], cst.If) if len(sets) == 2 else None
    if choice is None or not isinstance(choice.orelse, cst.Else) or isinstance(ctx.parent(choice), cst.If):
        return None
    blocks = [ctx.parent(enclosing(ctx, each, cst.SimpleStatementLine) or each) for each in sets]
    return choice if blocks == [choice.body, choice.orelse.body] else None


def _asked_below(choice: cst.If, read: cst.Call, model: cst.BaseExpression, ctx: Context) -> tuple[str, str] | None:
    """The test and its opposite, where both the test and the model are the same still."""
    block = ctx.parent(choice)
    is_above = block is not None and contains(ctx, block, read) and ctx.span(choice)[1] <= ctx.span(read)[0]
    if not is_above or any(isinstance(each, _ASKS_MORE) for each in ctx.inside(choice.test)):
        return None
    is_same = ctx.same_meaning(choice.test, read) and ctx.same_meaning(model, choice)
    return (ctx.quote(choice.test), negated(choice.test, ctx)) if is_same else None


def _asked_again(
    choice: cst.If, owner: cst.ClassDef, model: cst.BaseExpression, ctx: Context
) -> tuple[str, str] | None:
    """The same of `self.full`, for a test of that, or of `full` where `self.full = full` stands beside it."""
    maker, test = ctx.scope(choice), choice.test
    if not isinstance(maker, cst.FunctionDef) or maker.name.value != "__init__" or ctx.parent(choice) is not maker.body:
        return None
    kept = test if isinstance(test, cst.Attribute) else None
    for line in maker.body.body if isinstance(test, cst.Name) else ():
        target = only_target(alone(line))
        stored = ctx.parent(ctx.parent(target) or target) if target is not None else None
        if isinstance(stored, cst.Assign) and ctx.code(stored.value) == ctx.code(test):
            kept = target if isinstance(target, cst.Attribute) and ctx.same_meaning(stored.value, choice) else None
    if kept is None or not is_self(kept.value, ctx):
        return None
    is_last = _is_stored_once(ctx.code(kept), owner, ctx) and _is_stored_once(ctx.code(model), owner, ctx)
    return (ctx.quote(kept), f"not {ctx.quote(kept)}") if is_last else None


def _is_stored_once(text: str, owner: cst.ClassDef, ctx: Context) -> bool:
    """Whether `self.name` is bound in one place of a class, and nothing else in the file binds such an attribute."""
    name = text.rpartition(".")[2]
    attributes = [each for each in ctx.nodes(cst.Attribute) if each.attr.value == name]
    stores = [each for each in attributes if isinstance(ctx.parent(each), (cst.AssignTarget, cst.AnnAssign))]
    others = [each for each in stores if is_self(each.value, ctx) and enclosing(ctx, each, cst.ClassDef) is not owner]
    return len(stores) - len(others) == 1


def _made(
    tests: tuple[str, str], sets: tuple[cst.Call, ...], model: cst.BaseExpression, ctx: Context
) -> ChosenSetting | None:
    """Sharded ones that FSDP1 moved to the CPU are none of FSDP2's own."""
    try:
        chosen = [settings(each, ctx) for each in sets]
    except NotStatic:
        return None
    if {each.kind for each in chosen} != {"FULL_STATE_DICT", "SHARDED_STATE_DICT"}:
        return None
    if {ctx.code(each.model) for each in chosen} != {ctx.code(model)}:
        return None
    full, parts = chosen if chosen[0].is_full else reversed(chosen)
    if parts.config["offload_to_cpu"] != "False" or not {*full.config.values()} <= {"True", "False"}:
        return None
    return ChosenSetting(tests[0] if chosen[0].is_full else tests[1], full, sets)
