"""What no call of the program passes to one of its functions: such parameters are known, they are their defaults."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import call_by
from codemods.reading.code.shapes import parameter_names


def parameter_named(value: cst.Name, function: cst.FunctionDef) -> cst.Param | None:
    """The parameter of a function that a name in it is."""
    params = (*function.params.params, *function.params.kwonly_params)
    return next((param for param in params if param.name.value == value.value), None)


def is_never_passed(ctx: Context, function: cst.FunctionDef, param: cst.Param) -> bool:
    """Whether the program calls a function, or makes partials of it, and never passes this parameter."""
    before = list(function.params.params)
    index = before.index(param) if param in before else len(before)
    references = list(ctx.references_to(function))
    return bool(references) and all(_leaves_out(where, name, param, index) for where, name in references)


def is_never_given_more(ctx: Context, function: cst.FunctionDef, asked: frozenset[cst.CSTNode] = frozenset()) -> bool:
    """Whether the program calls a function, and its `**kwargs`, which are only handed on, are empty each time."""
    rest, star = function.params.star_kwarg, function.params.star_arg
    if rest is None or function in asked or function.decorators or isinstance(star, cst.Param):
        return False
    names = [node for node in ctx.inside(function.body) if isinstance(node, cst.Name) and node.value == rest.name.value]
    splats = [parent for parent in map(ctx.parent, names) if isinstance(parent, cst.Arg) and parent.star == "**"]
    references = list(ctx.references_to(function))
    if len(splats) != len(names) or not references:
        return False
    asked |= {function}
    return all(_gives_no_more(where, name, function, asked) for where, name in references)


def _gives_no_more(
    ctx: Context, reference: cst.CSTNode, function: cst.FunctionDef, asked: frozenset[cst.CSTNode]
) -> bool:
    call = call_by(reference, ctx)
    if call is None:
        return False
    plain = (*function.params.posonly_params, *function.params.params)
    taken = set(parameter_names(function))
    by_place = [argument for argument in call.args if argument.keyword is None and argument.star != "**"]
    named = {argument.keyword.value for argument in call.args if argument.keyword is not None}
    if any(argument.star for argument in by_place) or len(by_place) > len(plain) or not named <= taken:
        return False
    return all(_is_empty_rest(ctx, argument, asked) for argument in call.args if argument.star == "**")


def _is_empty_rest(ctx: Context, argument: cst.Arg, asked: frozenset[cst.CSTNode]) -> bool:
    around = ctx.scope(argument)
    return (
        isinstance(around, cst.FunctionDef)
        and is_rest_of(argument.value, around)
        and (is_never_given_more(ctx, around, asked))
    )


def star_of_one(ctx: Context, value: cst.BaseExpression) -> cst.Param | None:
    """The `*args` that a name is, where each call of the function gives one value by its place, and nothing else reads
    it: a parameter can stand there.
    """
    function = ctx.scope(value)
    star = function.params.star_arg if isinstance(function, cst.FunctionDef) else None
    if not isinstance(function, cst.FunctionDef) or not isinstance(star, cst.Param) or not isinstance(value, cst.Name):
        return None
    if star.name.value != value.value or list(ctx.uses(star)) != [value]:
        return None
    start, end = ctx.span(star.name)
    if ctx.text[start - 1 : end] != f"*{value.value}":  # `* args`
        return None
    if function.decorators or function.params.params or function.params.posonly_params:
        return None
    calls = [call_by(name, where) for where, name in ctx.references_to(function)]
    given = [[each for each in call.args if each.keyword is None and each.star != "**"] for call in calls if call]
    is_one = bool(calls) and len(given) == len(calls) and all(len(g) == 1 and not g[0].star for g in given)
    return star if is_one else None


def is_rest_of(value: cst.BaseExpression, function: cst.FunctionDef) -> bool:
    """Whether it is the `**kwargs` of a function."""
    rest = function.params.star_kwarg
    return rest is not None and isinstance(value, cst.Name) and value.value == rest.name.value


def _leaves_out(ctx: Context, reference: cst.CSTNode, param: cst.Param, index: int) -> bool:
    """Whether the function is called, or put into a partial, with what comes before the parameter and not with it."""
    holder = ctx.parent(reference)
    if isinstance(holder, cst.Call) and holder.func is reference:
        given: Sequence[cst.Arg] = holder.args
    else:
        call = ctx.parent(holder) if isinstance(holder, cst.Arg) else None
        if not isinstance(call, cst.Call) or call.args[0] is not holder:
            return False
        if ctx.dotted(call.func) != "functools.partial":
            return False
        given = call.args[1:]
    by_place = sum(argument.keyword is None for argument in given)
    named = {argument.keyword.value for argument in given if argument.keyword is not None}
    is_spread = any(argument.star for argument in given)
    return not is_spread and by_place <= index and param.name.value not in named
