"""A function that returns a value or None by one condition, for one call alone: what it says becomes an `if` there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import contains, is_self
from codemods.reading.code.shapes import alone
from codemods.reading.edits.layout import comments_in, lost_comments
from codemods.reading.edits.negation import negated
from codemods.reading.values.choices import written


@dataclass(frozen=True, slots=True)
class OptionalResult:
    """What such a call gives."""

    function: cst.FunctionDef
    """It has no other use."""
    test: str
    """A template that is true at the call where there is a value."""
    made: cst.BaseExpression
    """The value, which means the same at the call."""


def optional_result(ctx: Context, call: cst.BaseExpression) -> OptionalResult | None:
    """None for any other call, and where something that the function does would not be done in its place."""
    function = _only_for(ctx, call)
    if function is None or not isinstance(call, cst.Call):
        return None
    choice = _choice(function)
    given = arguments_given(call, function)
    if choice is None or given is None or not all(_is_variable(ctx, value) for value in given.values()):
        return None
    test, value, otherwise = choice
    if not _only_reads(ctx, test) or _is_none(value) is _is_none(otherwise):
        return None
    made = otherwise if _is_none(value) else value
    texts: dict[cst.CSTNode, str] = {}
    for param in function.params.params:
        for use in ctx.uses(param):
            if param.name.value not in given:
                return None
            texts[use] = ctx.quote(given[param.name.value])
    if not all(name in texts or ctx.same_meaning(name, call) for name in _names(ctx, test)):
        return None
    if made is None or not ctx.same_meaning(made, call):
        return None
    text = negated(test, ctx, texts) if made is otherwise else written(ctx, test, texts)
    return OptionalResult(function, text, made)


def only_result(
    ctx: Context, call: cst.BaseExpression
) -> tuple[cst.FunctionDef, cst.BaseExpression, list[cst.BaseExpression]] | None:
    """A function, or a method of this object, that nothing but this call runs, what it returns, and what it gives names
    to above: it does nothing else.
    """
    function = _only_for(ctx, call) or _only_method(ctx, call)
    if function is None or not isinstance(call, cst.Call) or call.args:
        return None
    *above, last = function.body.body
    returned = _returned([last])
    named = [each.value for each in map(alone, above) if isinstance(each, cst.Assign)]
    if returned is None or returned.value is None or len(named) < len(above):
        return None
    bound = ctx.bound(returned.value) if isinstance(returned.value, cst.Name) else None
    value = bound[0][1] if bound is not None and len(bound) == 1 and bound[0][1] in named else returned.value
    return function, value, named


def _only_method(ctx: Context, call: cst.BaseExpression) -> cst.FunctionDef | None:
    """The method of a class without a base that `self.method()` runs, the one place where the program has its name."""
    func = call.func if isinstance(call, cst.Call) else None
    if not isinstance(func, cst.Attribute) or not is_self(func.value, ctx):
        return None
    name = func.attr.value
    defined = [node for where in ctx.files(name) for node in where.nodes(cst.FunctionDef) if node.name.value == name]
    owner = ctx.scope(defined[0]) if len(defined) == 1 else None
    if not isinstance(owner, cst.ClassDef) or owner.bases or not contains(ctx, owner, func):
        return None
    if len(defined[0].params.params) != 1 or [node for _, node in ctx.attributes(name)] != [func]:
        return None
    return defined[0] if _is_plain(ctx, defined[0]) else None


def _only_for(ctx: Context, call: cst.BaseExpression) -> cst.FunctionDef | None:
    """The same for a function in which nothing is said that would go with it."""
    function = function_only_for(ctx, call)
    return function if function is not None and _is_plain(ctx, function) else None


def function_only_for(ctx: Context, call: cst.BaseExpression) -> cst.FunctionDef | None:
    """The function at the top of this file that nothing but the call names, and that no other file can read."""
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Name):
        return None
    origins = ctx.origins(call.func)
    function = origins[0].node if len(origins) == 1 and origins[0].file is ctx else None
    if not isinstance(function, cst.FunctionDef) or not isinstance(ctx.parent(function), cst.Module):
        return None
    if ctx.is_read_elsewhere(function.name.value) or not _is_run_as_it_stands(ctx, function):
        return None
    return function if [name for _, name in ctx.references_to(function)] == [call.func] else None


def _is_plain(ctx: Context, function: cst.FunctionDef) -> bool:
    """Whether nothing is said about a function, or of it elsewhere, and it is run as it stands."""
    is_said = bool(comments_in(ctx.text[slice(*ctx.whole_lines(function))]) or lost_comments(ctx, function))
    return not is_said and _is_run_as_it_stands(ctx, function)


def _is_run_as_it_stands(ctx: Context, function: cst.FunctionDef) -> bool:
    if function.decorators or function.asynchronous is not None:
        return False
    name = function.name.value
    return not any(node.evaluated_value == name for node in ctx.nodes(cst.SimpleString))  # `__all__`


def _choice(
    function: cst.FunctionDef,
) -> tuple[cst.BaseExpression, cst.BaseExpression | None, cst.BaseExpression | None] | None:
    """The condition, what is returned where it holds, and what is where not: there is nothing else in the function."""
    body = function.body.body
    choice = body[0] if body else None
    if not isinstance(choice, cst.If) or isinstance(choice.orelse, cst.If):
        return None
    rest: Sequence[cst.CSTNode] = body[1:]
    if choice.orelse is not None:
        if rest:
            return None
        rest = choice.orelse.body.body
    sides = [_returned(block) for block in (choice.body.body, rest)]
    if any(side is None for side in sides):
        return None
    value, otherwise = (side.value for side in sides if side is not None)
    return choice.test, value, otherwise


def _returned(block: Sequence[cst.CSTNode]) -> cst.Return | None:
    """The statement that a block is."""
    line = block[0] if len(block) == 1 else None
    small = alone(line) or line
    return small if isinstance(small, cst.Return) else None


def _is_none(value: cst.BaseExpression | None) -> bool:
    return value is None or (isinstance(value, cst.Name) and value.value == "None")


def arguments_given(call: cst.Call, function: cst.FunctionDef) -> dict[str, cst.BaseExpression] | None:
    """What is passed for each parameter; None where that is not plain."""
    params = function.params
    if params.posonly_params or params.kwonly_params or params.star_kwarg is not None:
        return None
    if not isinstance(params.star_arg, cst.MaybeSentinel) or any(argument.star for argument in call.args):
        return None
    names = [param.name.value for param in params.params]
    given: dict[str, cst.BaseExpression] = {}
    for index, argument in enumerate(call.args):
        if argument.keyword is None and index >= len(names):
            return None
        name = argument.keyword.value if argument.keyword is not None else names[index]
        if name not in names or name in given:
            return None
        given[name] = argument.value
    needed = {param.name.value for param in params.params if param.default is None}
    return given if needed <= given.keys() else None


_READS = (cst.Name, cst.Attribute, cst.SimpleString, cst.Integer, cst.Comparison, cst.BooleanOperation)


def _only_reads(ctx: Context, value: cst.BaseExpression) -> bool:
    """Whether it can be said in another place as it is: it does nothing, and asks for nothing of FSDP1."""
    for node in ctx.inside(value):
        is_not = isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not)
        if _is_expression(node) and not isinstance(node, _READS) and not is_not:
            return False
    return not _names_fsdp1(ctx, value)


def _is_variable(ctx: Context, value: cst.BaseExpression) -> bool:
    """Whether it is `mode` or `args.mode`, and no setting of FSDP1, which is another value once it is rewritten."""
    if not all(isinstance(node, (cst.Name, cst.Attribute)) for node in ctx.inside(value) if _is_expression(node)):
        return False
    made = [(origin.file, origin.node) for origin in ctx.origins(value)]
    return not any(_names_fsdp1(where, node) for where, node in made if node is not None)


def _names_fsdp1(ctx: Context, node: cst.CSTNode) -> bool:
    return any(isinstance(each, (cst.Name, cst.Attribute)) and ctx.fsdp1(each) for each in ctx.inside(node))


def _is_expression(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.BaseExpression)


def _names(ctx: Context, value: cst.BaseExpression) -> list[cst.Name]:
    """Those that are looked up."""
    found = [node for node in ctx.inside(value) if isinstance(node, cst.Name)]
    attributes = {node.attr for node in ctx.inside(value) if isinstance(node, cst.Attribute)}
    return [node for node in found if node not in attributes]
