"""`**kwargs` of the function around the constructor: what the program's calls of it give, read at run time."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Origin
from codemods.reading.chosen_class import takes_alone

from .draft import Entry
from .spread import Spread, unseen


def of_rest(ctx: Context, value: cst.BaseExpression, function: cst.FunctionDef) -> Spread:
    """An entry for each keyword that a call of the function gives beyond its parameters.

    Raises NotStatic where a call may give others, as one from another file may that is not seen, or something else gets
    hold of the dict: what is read by name would pass over the rest without a word.
    """
    calls = [(where, where.parent(name), name) for where, name in ctx.references_to(function)]
    if not calls or function.decorators or not _is_only_spread(ctx, value, function):
        raise unseen(ctx, value)
    taken = {param.name.value for param in (*function.params.params, *function.params.kwonly_params)}
    given: list[dict[str, tuple[Context, cst.BaseExpression]]] = []
    for where, call, name in calls:
        if not isinstance(call, cst.Call) or call.func is not name or any(argument.star for argument in call.args):
            raise unseen(ctx, value)
        if where.path != ctx.path:
            raise unseen(ctx, value)
        named = {argument.keyword.value: argument.value for argument in call.args if argument.keyword is not None}
        given.append({key: (where, each) for key, each in named.items() if key not in taken})
    result, text = Spread(), ctx.quote(value)
    for key in dict.fromkeys(key for each in given for key in each):
        stored = tuple(each[key] for each in given if key in each)
        values: tuple[Origin, ...] = tuple(origin for where, each in stored for origin in where.origins(each))
        result.keeps.update(origin.node for origin in values if origin.node is not None and not origin.is_none)
        may_lack = len(stored) < len(given)
        taken_out = f'{text}.get("{key}")' if may_lack else f'{text}["{key}"]'
        result.values[key] = Entry(taken_out, values, may_lack, stored, whole=text)
    return result


def _is_only_spread(ctx: Context, value: cst.BaseExpression, function: cst.FunctionDef) -> bool:
    """Whether all that the function does with its `**kwargs` is to hand them to constructor calls."""
    names = [node for node in ctx.inside(function.body) if isinstance(node, cst.Name) and node.value == ctx.code(value)]
    return all(_is_handed_to_wrapper(ctx, name, function) for name in names)


def _is_handed_to_wrapper(ctx: Context, name: cst.Name, function: cst.FunctionDef) -> bool:
    argument, scope = ctx.parent(name), ctx.scope(name)
    own = (scope.params.star_kwarg, *scope.params.params) if isinstance(scope, cst.FunctionDef) else ()
    if isinstance(argument, cst.Param) or (scope is not function and any(_is(each, name) for each in own)):
        return True  # the parameter of a function inside, or what that does with it
    return isinstance(argument, cst.Arg) and argument.star == "**" and takes_alone(ctx, argument)


def _is(parameter: cst.Param | None, name: cst.Name) -> bool:
    return parameter is not None and parameter.name.value == name.value
