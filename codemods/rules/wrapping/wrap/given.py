"""What a constructor call is given, by name: arguments that stand in it, and those that come out of dicts."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from codemods.api import Context, NotStatic
from codemods.reading.code.words import is_name
from codemods.reading.values.defaults import star_of_one
from codemods.reading.wraps.manual import argument_name, class_given, context_of
from codemods.reading.wraps.manual import arguments as passed_arguments
from codemods.tables.arguments import DROPPED, POSITIONS
from codemods.tables.names import WRAPPER

from .draft import Entry, Switch, Value
from .kwargs.entries import of_dict
from .kwargs.open_dict import is_given_from_outside, of_open_dict
from .kwargs.splats import spread
from .kwargs.spread import Spread
from .tensors import ignored


class NotFSDP1(NotStatic):
    """An argument that torch's FSDP1 does not take: the class is a changed one, or the program does not run."""


def _check_names(names: Iterable[str]) -> None:
    unknown = sorted(set(names) - {*POSITIONS, *ignored.NAMES})
    if unknown:
        raise NotFSDP1(", ".join(unknown))


def read_arguments(ctx: Context, call: cst.Call, at_run_time: bool = False) -> Spread:
    """The arguments by name; those that come by the name of a dict as entries of it, where they are read at run time.

    Raises NotFSDP1 for a name that is none of FSDP1's, and NotStatic for `*args`, and for a `**kwargs` that the program
    does not spell out.
    """
    wrapper = class_given(ctx, call)
    passed = [argument for argument in passed_arguments(ctx, call) if argument.value is not wrapper]
    _check_names(name for argument in passed if (name := argument_name(argument)))
    context = context_of(ctx, call)
    found = Spread()
    opened: list[cst.BaseExpression] = []
    for index, argument in enumerate(passed):
        if _binds(argument.value):
            raise NotStatic("an argument binds a name, which would be gone with it")
        if argument.star == "**":
            try:
                if at_run_time and isinstance(argument.value, cst.Name):
                    found.add(of_dict(ctx, call, argument.value))
                else:
                    found.add(spread(ctx, call, argument.value))
            except NotStatic:
                is_last = context is None or argument in context.args  # else it may be told what the context says
                is_fsdps = ctx.fsdp1(call.func) == WRAPPER or wrapper is not None or context is not None
                if not is_fsdps or not is_last or is_given_from_outside(ctx, call, argument.value):
                    raise  # another class may take it, or another program give it
                opened.append(argument.value)
        elif argument.star and star_of_one(ctx, argument.value) is not None:
            found.values["module"] = argument.value
        elif argument.star:
            raise NotStatic(f"arguments come from `{argument.star}{ctx.code(argument.value)}`")
        elif argument.keyword is not None:
            name = argument_name(argument)
            entry = found.values.get(name)
            if name in DROPPED and isinstance(entry, Entry):
                found.needless[name] = entry
            found.values[name] = _itself(argument.value, ctx)
        elif index < len(POSITIONS):
            found.values[POSITIONS[index]] = argument.value
    for value in opened:
        found.add(of_open_dict(ctx, call, value, found.values))
    if wrapper is not None or context is not None:
        found.values.pop("wrapper_cls", None)
    _check_names(found.values)
    found.values = {name: _in_any_case(name, value, ctx) for name, value in found.values.items()}
    return found


_TRUE_WHERE_GIVEN = frozenset(
    {"auto_wrap_policy", "cpu_offload", "mixed_precision", "process_group", "sharding_strategy"}
)
"""Arguments whose values are false where they are None, and in no other case."""


def _in_any_case(name: str, value: Value, ctx: Context) -> Value:
    """`x` of what is put into a dict under `if x is not None:`, where None is as good as no argument."""
    if (
        not isinstance(value, Switch)
        or value.orelse is not None
        or not isinstance(value.body, (cst.Name, cst.Attribute))
    ):
        return value
    text, test = ctx.code(value.body), ctx.code(value.test)
    is_asked = test == f"{text} is not None" or (test == text and name in _TRUE_WHERE_GIVEN)
    return value.body if is_asked else value


def _itself(value: cst.BaseExpression, ctx: Context) -> cst.BaseExpression:
    """`x` of `x if x is not None else None`."""
    if not isinstance(value, cst.IfExp) or not isinstance(value.body, (cst.Name, cst.Attribute)):
        return value
    text = ctx.code(value.body)
    return value.body if is_name(value.orelse, "None") and ctx.code(value.test) == f"{text} is not None" else value


def _binds(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.NamedExpr) or any(_binds(child) for child in node.children)
