"""A call that stays one, in its layout: of torch's function, or of the support module's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from codemods.api import SUPPORT, Edit, Import
from codemods.plan import PlannedContext
from codemods.reading.edits.call_layout import argument_removal, renaming, space_behind
from codemods.reading.optimizers.calls import Given
from codemods.tables.state_dicts import OPTIMIZER_CALLS


@dataclass(frozen=True)
class Written:
    """What a call becomes."""

    becomes: str
    """In words."""
    edits: Sequence[Edit]
    imports: Sequence[Import]
    gathers: bool = False
    """Whether it reads a whole state, for which each rank has to come there."""


def as_function(
    call: cst.Call,
    name: str,
    given: Given,
    ctx: PlannedContext,
    function: str = "",
    more: str = "",
    needless: Sequence[str] = (),
) -> Written:
    """The support module's function, of the same name unless told otherwise."""
    item = ctx.named(Import(SUPPORT, function or name), call)
    edits = renamed(call, item.local, given, (*OPTIMIZER_CALLS[name].dropped, *needless), more, ctx)
    return Written(f"{item.name}, a support function", edits, [item])


def renamed(
    call: cst.Call, function: str, given: Given, left_out: Sequence[str], more: str, ctx: PlannedContext
) -> list[Edit]:
    """Call another function, without some arguments and with `more` behind the others."""
    dropped = [given[key] for key in left_out if key in given]
    edits = renaming(ctx, call, function, dropped)
    kept = [argument for argument in call.args if argument not in dropped]
    tail = call.args[call.args.index(kept[-1]) + 1 :] if kept else ()
    if len(tail) > 1:  # together, since each would take the comma in front of it
        edits.append(Edit(ctx.span(kept[-1].value)[1], ctx.span(tail[-1].value)[1], ""))
    for argument in dropped:
        edits += argument_removal(ctx, call, argument) if len(tail) < 2 or argument not in tail else []
    if not more:
        return edits
    last = [argument for argument in call.args if argument not in dropped][-1]
    end = ctx.span(last.value)[1]
    more = f",{space_behind(ctx, call, last)}{more.removeprefix(', ')}"
    behind = next((removal for removal in edits if removal.start == end), Edit(end, end, ""))
    return [*(other for other in edits if other != behind), Edit(end, behind.end, more)]
