"""Parameters of the wrapping function that only the constructor call reads, and that no call of the program passes.

What they are is known: their defaults. They go with what they were for, as nothing reads them any more.
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import contains
from codemods.reading.values.defaults import is_never_passed, parameter_named

from ..draft import Draft, Note, Value

_COSTLY = ("device_mesh", "ignored_modules", "process_group", "sharding_strategy")
"""The arguments that cost a function where only run time knows them."""
_EMPTY = ("[]", "()", "list()", "set()", "tuple()")


def put_defaults(values: dict[str, Value], draft: Draft) -> None:
    """Put the default in the place of such a parameter, among the arguments of a constructor call."""
    ctx = draft.file
    function = ctx.scope(draft.call)
    if not isinstance(function, cst.FunctionDef) or not isinstance(ctx.scope(function), cst.Module):
        return
    if function.decorators or function.params.posonly_params:
        return
    found: list[cst.Param] = []
    for name in _COSTLY:
        value = values.get(name)
        param = parameter_named(value, function) if isinstance(value, cst.Name) else None
        put = _put_for_none(param, function, ctx) if param is not None and name == "ignored_modules" else None
        if param is not None and param.default is not None and _is_unpassed(param, function, put, draft):
            values[name] = param.default
            found.append(param)
            draft.dead += [put] if put is not None else []
    if found:
        named = ", ".join(f"`{param.name.value}`" for param in found)
        verb = "goes" if len(found) == 1 else "go"
        draft.notes.append(Note(f"{named} of {function.name.value} {verb}: no call of the program passes them"))


def _put_for_none(param: cst.Param, function: cst.FunctionDef, ctx: Context) -> cst.If | None:
    """`if modules is None: modules = []`, which is for those who pass none."""
    name = param.name.value
    for statement in function.body.body:
        if not isinstance(statement, cst.If) or ctx.code(statement.test) != f"{name} is None" or statement.orelse:
            continue
        text = [ctx.code(line).strip() for line in statement.body.body]
        if len(text) == 1 and text[0] in {f"{name} = {empty}" for empty in _EMPTY}:
            return statement
    return None


def _is_unpassed(param: cst.Param, function: cst.FunctionDef, put: cst.If | None, draft: Draft) -> bool:
    ctx = draft.file
    names = [node for node in ctx.inside(function.body) if isinstance(node, cst.Name)]
    uses = [node for node in names if node.value == param.name.value and not _is_keyword(ctx, node)]
    if not all(contains(ctx, draft.call, use) or (put is not None and contains(ctx, put, use)) for use in uses):
        return False
    return is_never_passed(ctx, function, param)


def _is_keyword(ctx: Context, node: cst.Name) -> bool:
    holder = ctx.parent(node)
    return isinstance(holder, cst.Arg) and holder.keyword is node
