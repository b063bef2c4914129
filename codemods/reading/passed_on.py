"""The FSDP class as a value: where a variable, a table or a parameter takes it to, and whether it is only called there.

`shard_model` of the support module can stand in its place then; in a class test or as a base class it cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import libcst as cst

from codemods.vocabulary import File

Calls = list[tuple[File, cst.Call]]


def calls_of(file: File, value: cst.BaseExpression) -> Calls | None:
    """The calls of a value, followed through the program; None where it is used in any other way, or lost."""
    holder = file.parent(value)
    if isinstance(holder, cst.Call) and holder.func is value:
        return [(file, holder)]
    if isinstance(holder, (cst.IfExp, cst.BooleanOperation)) and holder is not None and _is_result(holder, value):
        return calls_of(file, holder)
    if isinstance(holder, cst.Assign) and len(holder.targets) == 1 and isinstance(holder.targets[0].target, cst.Name):
        return _of_uses(file, holder, holder.targets[0].target)
    if isinstance(holder, cst.Param):
        return _all(calls_of(file, use) for use in file.uses(holder))
    if isinstance(holder, cst.DictElement) and holder.value is value:
        return _of_table(file, holder)
    if isinstance(holder, cst.Arg):
        return _of_parameter(file, holder)
    return None


def _is_result(holder: cst.IfExp | cst.BooleanOperation, value: cst.BaseExpression) -> bool:
    return not (isinstance(holder, cst.IfExp) and holder.test is value)


def _of_uses(file: File, statement: cst.Assign, name: cst.Name) -> Calls | None:
    if isinstance(file.scope(statement), cst.Module) and file.mentions_elsewhere(name.value):
        return None
    return _all(calls_of(file, use) for use in file.uses(statement))


def _of_table(file: File, entry: cst.DictElement) -> Calls | None:
    """`WRAPPERS = {"fsdp": FSDP}`, used as `WRAPPERS[name](model)` or `WRAPPERS.get(name)(model)`."""
    table = file.parent(entry)
    statement = file.parent(table) if table is not None else None
    if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
        return None
    name = statement.targets[0].target
    if not isinstance(name, cst.Name):
        return None
    if isinstance(file.scope(statement), cst.Module) and file.mentions_elsewhere(name.value):
        return None
    return _all(_of_look_up(file, use) for use in file.uses(statement))


def _of_look_up(file: File, use: cst.Name) -> Calls | None:
    holder = file.parent(use)
    if isinstance(holder, cst.Subscript) and holder.value is use:
        return calls_of(file, holder)
    if isinstance(holder, cst.ComparisonTarget):
        return []  # `name in WRAPPERS`
    call = file.parent(holder) if isinstance(holder, cst.Attribute) else None
    if not isinstance(holder, cst.Attribute) or not isinstance(call, cst.Call) or call.func is not holder:
        return None
    if holder.attr.value == "keys":
        return []
    return calls_of(file, call) if holder.attr.value == "get" else None


def _of_parameter(file: File, argument: cst.Arg) -> Calls | None:
    """Handed to functions of the program."""
    call = file.parent(argument)
    if not isinstance(call, cst.Call) or argument.star:
        return None
    found = [_uses_of_parameter(where, function, call, argument) for where, function in file.runs(call)]
    return _all(found) if found else None


def _uses_of_parameter(file: File, function: cst.FunctionDef, call: cst.Call, argument: cst.Arg) -> Calls | None:
    parameters = function.params
    if argument.keyword is not None:
        named = (*parameters.params, *parameters.kwonly_params)
        parameter = next((p for p in named if p.name.value == argument.keyword.value), None)
    else:
        positional = (*parameters.posonly_params, *parameters.params)
        bound = isinstance(file.scope(function), cst.ClassDef)
        index = list(call.args).index(argument) + bound
        parameter = positional[index] if index < len(positional) else None
    return _all(calls_of(file, use) for use in file.uses(parameter)) if parameter is not None else None


def _all(found: Iterable[Calls | None]) -> Calls | None:
    """All calls together; None when one of the ways is not followed, or when there are none."""
    ways: Sequence[Calls | None] = list(found)
    if not ways or any(way is None for way in ways):
        return None
    return [call for way in ways if way is not None for call in way]
