"""A call that stays one, in its layout: of torch's function, or of the support module's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Import
from codemods.plan import PlannedContext
from codemods.reading.call_layout import argument_removal, renaming, space_behind
from codemods.reading.optimizer_calls import Given
from codemods.reading.optimizers import optimizer_loaded
from codemods.tables.state_dicts import OPTIMIZER_CALLS

_LOADERS = frozenset({"scatter_full_optim_state_dict", "shard_full_optim_state_dict"})
"""What takes an optimizer over all parameters for granted where none is given."""


@dataclass(frozen=True)
class Written:
    """What a call becomes."""

    becomes: str
    """In words."""
    edits: Sequence[Edit]
    imports: Sequence[Import]


def as_function(
    call: cst.Call, name: str, given: Given, ctx: PlannedContext, function: str = "", more: str = ""
) -> Written:
    """The support module's function, of the same name unless told otherwise."""
    item = ctx.named(Import(SUPPORT, function or name), call)
    if name in _LOADERS and "optim" not in given:
        optimizer = optimizer_loaded(call, ctx)
        more += f", optim={ctx.quote(optimizer)}" if optimizer is not None else ""
    left_out = OPTIMIZER_CALLS[name].dropped
    if function == "sharded_optim_state_dict":
        left_out = (*left_out, "rank0_only")
    edits = renamed(call, item.local, given, left_out, more, ctx)
    if name == "optim_state_dict_to_load":
        edits += _in_order(given, ctx)
    return Written(f"{item.name} of the support module", edits, [item])


def renamed(
    call: cst.Call, function: str, given: Given, left_out: Sequence[str], more: str, ctx: PlannedContext
) -> list[Edit]:
    """Call another function, without some arguments and with `more` behind the others."""
    dropped = [given[key] for key in left_out if key in given]
    edits = renaming(ctx, call, function, dropped)
    for argument in dropped:
        edits += argument_removal(ctx, call, argument)
    if not more:
        return edits
    last = [argument for argument in call.args if argument not in dropped][-1]
    end = ctx.span(last.value)[1]
    more = f",{space_behind(ctx, last)}{more.removeprefix(', ')}"
    behind = next((removal for removal in edits if removal.start == end), Edit(end, end, ""))
    return [*(other for other in edits if other != behind), Edit(end, behind.end, more)]


def _in_order(given: Given, ctx: Context) -> list[Edit]:
    """Put the arguments into the order of today: before torch 2.1 the state came first."""
    places = [ctx.span(given[key].value) for key in ("optim_state_dict", "model", "optim") if key in given]
    if len(places) < 3 or given["model"].keyword is not None or places[0] > places[1]:
        return []
    texts = [ctx.quote(given[key].value) for key in ("model", "optim", "optim_state_dict")]
    gaps = [ctx.quote_text(here[1], following[0]) for here, following in pairwise(places)]
    return [Edit(places[0][0], places[2][1], "".join([texts[0], gaps[0], texts[1], gaps[1], texts[2]]))]
