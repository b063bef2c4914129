"""Parameters of the wrapping function that stay, as something else reads them too, and that the new code asks no more.

The program passes one value, and that is what is written. One who passes another later has to know that it is for the
other readers alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from codemods.api import Edit
from codemods.plan import Plan
from codemods.reading.code.enclosing import contains, is_label
from codemods.reading.values.defaults import parameter_named
from codemods.reading.wraps.manual import arguments
from codemods.tables.arguments import DROPPED, POSITIONS
from codemods.template import has_word, number, pieces

from ..draft import Draft, Note

_OTHERS = frozenset({*DROPPED, "device_id", "module"})
"""What `fully_shard` is not given, whatever its value is, and the model."""
_STORES = (cst.AssignTarget, cst.AugAssign, cst.NamedExpr, cst.For, cst.AsName)


def of_fixed_parameters(made: Draft, written: Iterable[Edit], plan: Plan) -> Note | None:
    """What to say of them, if there are any: `written` replaces the call and what belongs to it."""
    ctx = made.file
    function = ctx.scope(made.call)
    if not isinstance(function, cst.FunctionDef):
        return None
    texts = [edit.text for edit in written]
    found = [
        argument.value.value
        for index, argument in enumerate(arguments(ctx, made.call))
        if isinstance(argument.value, cst.Name) and not argument.star and _name(argument, index) not in _OTHERS
        if parameter_named(argument.value, function) is not None
        if _is_read_beside(argument.value, function, made, plan) and not _is_written(argument.value, texts, made)
    ]
    if not found:
        return None
    named, (verb, change) = ", ".join(f"`{each}`" for each in found), ("stay", "change")
    if len(found) == 1:
        verb, change = "stays", "changes"
    text = f"{named} of {function.name.value} {verb}, and {change} nothing here: the program passes one value alone"
    return Note(text, "refuse another one there")


def _name(argument: cst.Arg, index: int) -> str:
    return argument.keyword.value if argument.keyword is not None else POSITIONS[index]


def _is_read_beside(value: cst.Name, function: cst.FunctionDef, made: Draft, plan: Plan) -> bool:
    """Whether something that stays reads the parameter, which keeps what it was given."""
    ctx = made.file
    names = [node for node in ctx.inside(function.body) if isinstance(node, cst.Name) and node.value == value.value]
    if any(
        isinstance(ctx.parent(node), _STORES) and getattr(ctx.parent(node), "target", node) is node for node in names
    ):
        return False
    gone = [*made.dead, *(call for call in ctx.calls(function) if plan.is_native(call))]
    return any(not any(contains(ctx, each, node) for each in gone) for node in names if not is_label(node, ctx))


def _is_written(value: cst.Name, texts: Iterable[str], made: Draft) -> bool:
    """Whether the new code names it: in what it says itself, or in a piece of the call that it takes over."""
    ctx = made.file
    first, last = ctx.span(made.call)
    mine = [
        ctx.span(node) for node in ctx.inside(made.call) if isinstance(node, cst.Name) and node.value == value.value
    ]
    for piece in (piece for text in texts for piece in pieces(text)):
        if isinstance(piece, str):
            if has_word(piece, value.value):
                return True
        elif piece.file == number(ctx.path) and first <= piece.start and piece.end <= last:
            if any(piece.start <= start and end <= piece.end for start, end in mine):
                return True
    return False
