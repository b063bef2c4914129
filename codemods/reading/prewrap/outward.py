"""From a constructor call outwards, through the functions that call its own, to what holds the parameters already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context
from codemods.reading.manual import is_factory
from codemods.reading.places import base, place
from codemods.reading.wrapped import wrapped_place

from .references import PrewrapReference, references_above

_DEPTH = 2
"""How many functions, each called by the next, are gone through."""


@dataclass(frozen=True)
class Step:
    """A call by which the model comes to be wrapped, and the place that the model has there."""

    file: Context
    site: cst.Call
    model: str


@dataclass(frozen=True)
class Early:
    """The holders in one function, and the call there that wraps the model or leads to where it is wrapped."""

    file: Context
    site: cst.Call
    model: str
    """The place of the wrapped model in that function."""
    holders: tuple[PrewrapReference, ...]
    inner: tuple[Step, ...]
    """The calls that lead from here to the constructor call, which comes first."""


def early_holders(ctx: Context, call: cst.Call) -> list[Early]:
    """For one constructor call: in its own function, and in those that call it with the model."""
    found: list[Early] = []
    for site in _calls_of_factory(ctx, call) if is_factory(ctx, call) else [call]:
        model = wrapped_place(ctx, site)
        if model is not None:
            found += _early(Step(ctx, site, model), (), _DEPTH)
    return [early for early in found if not _is_filled_anew(early)]


def _is_filled_anew(early: Early) -> bool:
    """Whether the program itself clears the optimizer's groups and, below the wrap, gives it new ones."""
    return any(_fills_anew(step) for step in (Step(early.file, early.site, early.model), *early.inner))


def _fills_anew(step: Step) -> bool:
    calls = step.file.calls(step.file.scope(step.site))
    texts = {call: step.file.code(call.func) for call in calls if isinstance(call.func, cst.Attribute)}
    here = step.file.span(step.site)[1]
    below = [text for call, text in texts.items() if step.file.span(call)[0] > here]
    return any(text.endswith(".param_groups.clear") for text in texts.values()) and any(
        text.endswith(".add_param_group") for text in below
    )


def _calls_of_factory(ctx: Context, call: cst.Call) -> Iterator[cst.Call]:
    """`wrapper(model)`, for `wrapper = partial(FSDP, ...)`."""
    assignment = ctx.parent(call)
    for use in ctx.uses(assignment) if isinstance(assignment, cst.Assign) else ():
        parent = ctx.parent(use)
        if isinstance(parent, cst.Call) and parent.func is use:
            yield parent


def _early(step: Step, inner: tuple[Step, ...], depth: int) -> Iterator[Early]:
    ctx, site, model = step.file, step.site, step.model
    holders = references_above(ctx, site, model)
    if holders:
        yield Early(ctx, site, model, holders, inner)
    for where, caller, outer in _outside(ctx, site, model) if depth else ():
        yield from _early(Step(where, caller, outer), (*inner, step), depth - 1)


def _outside(ctx: Context, site: cst.Call, model: str) -> Iterator[tuple[Context, cst.Call, str]]:
    """The calls that lead here, with the place that the model has there."""
    name, _, rest = model.partition(".")
    for where, caller, argument in ctx.passed_to(site, name):
        outer = base(argument)
        if outer is not None:
            yield where, caller, f"{outer}.{rest}" if rest else outer
    if rest and name == "self":
        for where, caller in ctx.callers(site):
            receiver = place(caller.func.value) if isinstance(caller.func, cst.Attribute) else None
            if receiver is not None:
                yield where, caller, f"{receiver}.{rest}"
