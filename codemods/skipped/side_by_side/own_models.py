"""Which expressions can hold a model that the program shards by its own `fully_shard`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import is_self
from codemods.reading.own_fsdp2.own_shardings import DEPTH, OwnShardings, definitions
from codemods.reading.own_fsdp2.shardings import is_fully_shard

_DEPTH = 8
"""Calls that are followed up from an expression to where its model is made."""


class OwnModels:
    """The search of one program: from an expression up to where its value comes from, and down to `fully_shard`."""

    def __init__(self, shardings: OwnShardings) -> None:
        self._shardings = shardings

    def come_to(self, ctx: Context, model: cst.BaseExpression) -> bool:
        """Whether a model that the program's own `fully_shard` sharded can be the value of `model`."""
        return self._come_to(ctx, model, _DEPTH, set())

    def _come_to(self, ctx: Context, model: cst.BaseExpression, depth: int, seen: set[cst.CSTNode]) -> bool:
        while isinstance(model, cst.Attribute) and not is_self(model.value, ctx):
            model = model.value  # `.module` of it
        if model in seen or depth == 0:
            return False
        seen.add(model)
        if isinstance(model, cst.Call):
            return self._comes_out(ctx, model, depth, seen)
        if not isinstance(model, (cst.Name, cst.Attribute)):
            return False
        if any(self._shards(ctx, call, model, DEPTH) for call in _beside(ctx, model)):
            return True
        return any(self._come_to(where, value, depth - 1, seen) for where, value in _sources(ctx, model))

    def _comes_out(self, ctx: Context, call: cst.Call, depth: int, seen: set[cst.CSTNode]) -> bool:
        """Whether a call gives back such a model, or an object of a class that makes one of what it is handed."""
        if is_fully_shard(ctx, call.func):
            return True
        if not self._shardings.reaches(ctx, call):
            return False
        for definition, where in definitions(ctx, call.func):
            if isinstance(definition, cst.ClassDef):
                return True
            results = (node.value for node in where.inside(definition) if isinstance(node, cst.Return))
            if any(value is not None and self._come_to(where, value, depth - 1, seen) for value in results):
                return True
        return False

    def _shards(self, ctx: Context, call: cst.Call, model: cst.BaseExpression, depth: int) -> bool:
        """Whether a call shards a model that it is handed, itself or further down."""
        text = ctx.code(model)
        handed = [each for each in call.args if ctx.code(each.value) == text]
        is_method = isinstance(call.func, cst.Attribute) and ctx.code(call.func.value) == text
        if not handed and not is_method:
            return False
        if is_fully_shard(ctx, call.func):
            return True
        if depth == 0 or not self._shardings.reaches(ctx, call):
            return False
        for definition, where in definitions(ctx, call.func):
            if isinstance(definition, cst.FunctionDef):
                for parameter in _taking(where, definition, call, text, is_method):
                    if any(self._shards(where, inner, parameter.name, depth - 1) for inner in where.calls(definition)):
                        return True
        return False


def _taking(ctx: Context, function: cst.FunctionDef, call: cst.Call, text: str, is_method: bool) -> Iterator[cst.Param]:
    """The parameters of a function that take, at one call, the argument or the object of this text."""
    first = function.body.body[0]
    positional = [*function.params.posonly_params, *function.params.params]
    if is_method:
        yield from positional[:1]
    for parameter in (*positional, *function.params.kwonly_params):
        for where, other, argument in ctx.passed_to(first, parameter.name.value):
            if other is call and where.code(argument) == text:
                yield parameter


def _beside(ctx: Context, model: cst.BaseExpression) -> Iterator[cst.Call]:
    """The calls of the function around a place, and of its class for what an object holds, that can run before it."""
    scope = ctx.scope(model)
    owner = ctx.scope(scope) if isinstance(model, cst.Attribute) else None
    methods = owner.body.body if isinstance(owner, cst.ClassDef) else ()
    for each in [each for each in methods if isinstance(each, cst.FunctionDef)] or (scope,):
        for call in ctx.calls(each):
            if not ctx.excludes(call, model):
                yield call


def _sources(ctx: Context, model: cst.Name | cst.Attribute) -> Iterator[tuple[Context, cst.BaseExpression]]:
    """What a variable, a parameter or an attribute is bound to."""
    if isinstance(model, cst.Attribute):
        for where, node in ctx.attributes(model.attr.value):
            target = where.parent(node)
            statement = where.parent(target) if isinstance(target, cst.AssignTarget) else target
            if isinstance(statement, cst.Assign) and statement.value is not node:
                yield where, statement.value
        return
    yield from ctx.bound(model) or ()
    for where, _, argument in ctx.passed_to(model, model.value):
        yield where, argument
