"""The FSDP class as a value: where a variable, a table or a parameter takes it to, and whether it is only called there.

`shard_model` of the support module can stand in its place then; in a class test or as a base class it cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import call_by, call_given, is_self
from codemods.reading.code.shapes import is_call_to, only_target
from codemods.reading.wraps.manual import is_map

T = TypeVar("T")
Calls = list[tuple[Context, cst.Call]]
Seen = frozenset[cst.BaseExpression]
"""What led to a use: in a recursion, that comes again."""


def calls_of(ctx: Context, value: cst.BaseExpression, seen: Seen = frozenset()) -> Calls | None:
    """The calls of a value, followed through the program; None where it is used in any other way, or lost."""
    if value in seen:
        return []
    seen |= {value}
    holder = ctx.parent(value)
    if isinstance(holder, cst.Call) and holder.func is value:
        return [(ctx, holder)]
    if isinstance(holder, (cst.IfExp, cst.BooleanOperation)) and holder is not None and _is_result(holder, value):
        return calls_of(ctx, holder, seen)
    if isinstance(holder, cst.Assign) and len(holder.targets) == 1 and isinstance(holder.targets[0].target, cst.Name):
        return _of_uses(ctx, holder, holder.targets[0].target, seen)
    if isinstance(holder, cst.Param):
        return _all(calls_of(ctx, use, seen) for use in ctx.uses(holder))
    if isinstance(holder, cst.DictElement) and holder.value is value:
        return _of_table(ctx, holder, seen)
    if isinstance(holder, cst.Arg) and is_call_to(ctx.parent(holder), "dict"):
        return _of_table(ctx, holder, seen)
    if isinstance(holder, cst.Arg):
        return _of_parameter(ctx, holder, seen)
    return None


def attribute_holding(ctx: Context, value: cst.BaseExpression) -> str:
    """The attribute of an object, or of its class, that holds a value: `wrap` of `self.wrap = …`; empty for none."""
    outer = call_given(value, ctx)
    held = outer if is_call_to(outer, "staticmethod") else value
    statement = ctx.parent(held)
    target, function = only_target(statement), ctx.scope(value)
    if isinstance(target, cst.Name) and statement is not None and isinstance(ctx.scope(statement), cst.ClassDef):
        return target.value if not ctx.uses(statement) else ""
    if not isinstance(target, cst.Attribute) or not isinstance(function, cst.FunctionDef) or function.decorators:
        return ""
    return target.attr.value if is_self(target.value, ctx) else ""  # a function that a class holds takes the object


def mapped_over(ctx: Context, factory: cst.Call) -> cst.Call | None:
    """`map(FSDP, blocks)`, and the `map(partial(FSDP, …), blocks)` around a partial."""
    outer = factory if is_map(factory) else call_given(factory, ctx)
    return outer if is_map(outer) and outer.args[1].value is not factory else None


def calls_of_partial(ctx: Context, value: cst.Call) -> Calls:
    """The calls of what `partial` makes that are seen, by an attribute, and out of a table."""
    name = attribute_holding(ctx, value)
    if not name:
        assignment = ctx.parent(value)
        uses = ctx.uses(assignment) if isinstance(assignment, cst.Assign) else ()
        return calls_of(ctx, value) or [(ctx, call) for use in uses if (call := call_by(use, ctx)) is not None]
    called = [(where, call) for where, node in ctx.attributes(name) if (call := call_by(node, where)) is not None]
    return [each for each in called if any(origin.node is value for origin in each[0].origins(each[1].func))]


def _is_result(holder: cst.IfExp | cst.BooleanOperation, value: cst.BaseExpression) -> bool:
    return not (isinstance(holder, cst.IfExp) and holder.test is value)


def _of_uses(ctx: Context, statement: cst.Assign, name: cst.Name, seen: Seen) -> Calls | None:
    if isinstance(ctx.scope(statement), cst.Module) and ctx.mentions_elsewhere(name.value):
        return None
    return _all(calls_of(ctx, use, seen) for use in ctx.uses(statement))


def _of_table(ctx: Context, entry: cst.DictElement | cst.Arg, seen: Seen) -> Calls | None:
    """`KINDS = {"fsdp": FSDP}` or `dict(fsdp=FSDP)`, used as `KINDS[name](model)` or `KINDS.get(name)(model)`."""
    table = ctx.parent(entry)
    statement = ctx.parent(table) if table is not None else None
    name = only_target(statement)
    if not isinstance(statement, cst.Assign) or not isinstance(name, cst.Name):
        return None
    if isinstance(ctx.scope(statement), cst.Module) and ctx.mentions_elsewhere(name.value):
        return None
    return _all(_of_look_up(ctx, use, seen) for use in ctx.uses(statement))


def _of_look_up(ctx: Context, use: cst.Name, seen: Seen) -> Calls | None:
    holder = ctx.parent(use)
    if isinstance(holder, cst.Subscript) and holder.value is use:
        return calls_of(ctx, holder, seen)
    if isinstance(holder, cst.ComparisonTarget):
        return []  # `name in WRAPPERS`
    call = call_by(holder, ctx)
    if not isinstance(holder, cst.Attribute) or call is None:
        return None
    if holder.attr.value == "keys":
        return []
    return calls_of(ctx, call, seen) if holder.attr.value == "get" else None


def _of_parameter(ctx: Context, argument: cst.Arg, seen: Seen) -> Calls | None:
    """Handed to functions of the program."""
    given = parameters_given(ctx, argument)
    ways = (_all(calls_of(where, use, seen) for use in where.uses(each)) for where, each in given)
    return _all(ways) if given else None


def parameters_given(ctx: Context, argument: cst.Arg) -> Sequence[tuple[Context, cst.Param]]:
    """The parameters of the program's functions that an argument can be for; none where one of them is not seen."""
    call = ctx.parent(argument)
    if not isinstance(call, cst.Call) or argument.star:
        return ()
    found = [(where, _parameter_of(where, function, call, argument)) for where, function in ctx.runs(call)]
    seen = [(where, parameter) for where, parameter in found if parameter is not None]
    return seen if len(seen) == len(found) else ()


def _parameter_of(ctx: Context, function: cst.FunctionDef, call: cst.Call, argument: cst.Arg) -> cst.Param | None:
    parameters = function.params
    if argument.keyword is not None:
        named = (*parameters.params, *parameters.kwonly_params)
        return next((p for p in named if p.name.value == argument.keyword.value), None)
    positional = (*parameters.posonly_params, *parameters.params)
    bound = isinstance(ctx.scope(function), cst.ClassDef)
    index = list(call.args).index(argument) + bound
    return positional[index] if index < len(positional) else None


def _all(found: Iterable[Calls | None]) -> Calls | None:
    """All calls together; None when one of the ways is not followed, or when there are none."""
    ways = list(found)
    return all_of(ways) if ways else None


def all_of(found: Iterable[Sequence[T] | None]) -> list[T] | None:
    """All that the ways lead to; None when one is not followed."""
    ways = list(found)
    if any(way is None for way in ways):
        return None
    return [each for way in ways if way is not None for each in way]
