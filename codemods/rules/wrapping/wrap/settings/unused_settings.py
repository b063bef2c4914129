"""FSDP1 settings in variables of their own, which go with the last constructor call that took them."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.plan import Plan
from codemods.reading.code.enclosing import call_given
from codemods.reading.code.words import is_name
from codemods.reading.edits.dead import assignment_only_for
from codemods.reading.edits.layout import removal
from codemods.reading.values.attribute_stores import stored
from codemods.reading.wraps.chosen_class import takes_alone
from codemods.tables.names import WRAPPER

from ..draft import Draft
from ..places.in_place import is_given
from ..strategy.names import name_looked_up


def unused_settings(made: Draft, plan: Plan) -> Iterator[cst.CSTNode]:
    """The statements `cpu_offload = CPUOffload(...)` that nothing needs once all calls they reach are rewritten."""
    for value in (*(argument.value for argument in made.call.args), *made.spread):
        if not isinstance(value, cst.Name):
            continue
        for origin in made.file.origins(value):
            read = made.definitions | made.keeps
            if origin.file.path != made.file.path or origin.node is None or origin.node in read:
                continue  # one of another file goes when nothing imports it, which is for the user to see
            if not _is_setting(origin.node, made.file):
                continue
            node = _choice_of_settings(origin.node, made) or origin.node
            statement = assignment_only_for(made.file, node, lambda use: _goes_too(use, made, plan))
            if statement is not None and statement not in made.dead:
                yield statement


def _choice_of_settings(node: cst.CSTNode, made: Draft) -> cst.IfExp | None:
    """`CPUOffload(True) if config.offload else None`, whose condition does nothing."""
    choice = made.file.parent(node)
    if not isinstance(choice, cst.IfExp) or any(isinstance(n, cst.Call) for n in made.file.inside(choice.test)):
        return None
    sides = (choice.body, choice.orelse)
    kept = made.definitions | made.keeps
    settings = all(is_name(side, "None") or (_is_setting(side, made.file) and side not in kept) for side in sides)
    return choice if settings else None


def _is_setting(node: cst.CSTNode, ctx: Context) -> bool:
    if isinstance(node, cst.BaseExpression) and name_looked_up(ctx, node) is not None:
        return True
    named = node.func if isinstance(node, cst.Call) else node
    return isinstance(named, (cst.Name, cst.Attribute)) and ctx.fsdp1(named) not in {None, WRAPPER, "wrap"}


def _goes_too(use: cst.Name, made: Draft, plan: Plan) -> bool:
    """Whether a use is an argument of a constructor call that is written anew."""
    ctx = made.file
    if use in made.spread:
        return True
    argument, call = ctx.parent(use), call_given(use, ctx)
    return isinstance(argument, cst.Arg) and call is not None and plan.is_native(call) and takes_alone(ctx, argument)


# Fields of a dataclass that only a dropped argument reads: `limit_all_gathers: bool = True` goes with it.


def drop_field(argument: str, value: cst.BaseExpression, draft: Draft) -> None:
    """Take away the field that an argument is read from, where its default is all that the program stores in it."""
    if not isinstance(value, cst.Attribute):
        return
    seen = stored(draft.file, value.attr.value)
    if seen is None or [read for _, read in seen.reads] != [value] or not is_given(draft.file, value, argument):
        return
    fields = [(where, where.parent(target)) for where, target in seen.targets]
    if not all(isinstance(field, cst.AnnAssign) and isinstance(field.value, cst.Name) for _, field in fields):
        return
    defaults = {field.value for _, field in fields if isinstance(field, cst.AnnAssign) and field.value is not None}
    lines = [(where, where.parent(field)) for where, field in fields if field is not None]
    if defaults & draft.left or not all(
        isinstance(where.scope(field), cst.ClassDef) for where, field in fields if field
    ):
        return
    if any(not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1 for _, line in lines):
        return
    draft.definitions |= defaults
    draft.edits += [(where, removal(where, line)) for where, line in lines if line is not None]
