"""From a constructor call outwards, through the functions that call its own, to what holds the parameters already."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import contains, enclosing, upward
from codemods.reading.code.facts import combined
from codemods.reading.code.places import base, meets, place, reads
from codemods.reading.code.shapes import alone, comparison, only_target
from codemods.reading.wrappers.asked_classes import leaves
from codemods.reading.wraps.flat_parameters import makes_flat_parameters
from codemods.reading.wraps.manual import is_factory
from codemods.reading.wraps.passed_on import calls_of_partial, mapped_over
from codemods.reading.wraps.wrapped import looped_over, wrapped_place

from .entering import constructions, given_as, own_inits
from .inside import other_names
from .references import PrewrapReference, built_in_own, references_above, references_in

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
    for where, site, model in _sites(ctx, call):
        if model is not None:
            step = Step(where, site, model)
            early = list(_early(step, (), _DEPTH))
            found += early or _in_own_init(step)
    if makes_flat_parameters(ctx, call):
        found = [
            replace(early, holders=tuple(h for h in early.holders if not is_made_anew(h, early))) for early in found
        ]
    return [early for early in found if early.holders and not _is_filled_anew(early)]


def is_made_anew(holder: PrewrapReference, early: Early) -> bool:
    """Whether the program builds this optimizer again below the wrap, and does nothing with the first one in between.

    The first one trains nothing then, as under FSDP1 without use_orig_params=True.
    """
    name = holder.name or _name_of(early.file, holder.call)
    if not holder.is_optimizer or name is None:
        return False
    for inner, outer in upward(early.file, early.site):
        if isinstance(outer, (cst.IndentedBlock, cst.Module)):
            below: list[cst.CSTNode] = list(outer.body)
            for statement in below[below.index(inner) + 1 :]:
                if _makes(statement, name):
                    return True
                if meets(reads(statement), frozenset({name})):
                    return False
        if isinstance(outer, (cst.FunctionDef, cst.ClassDef, cst.Lambda, cst.For, cst.While, cst.Try)):
            return False
    return False


def _name_of(ctx: Context, call: cst.BaseExpression) -> str | None:
    target = only_target(ctx.parent(call))
    return place(target) if target is not None else None


def _makes(statement: cst.CSTNode, name: str) -> bool:
    """Whether a statement binds a place on all ways that go on, to something that is not made of what was there."""
    if isinstance(statement, cst.If):
        if statement.orelse is None or meets(reads(statement.test), frozenset({name})):
            return False
        rest = statement.orelse
        return _block_makes(statement.body, name) and (
            _makes(rest, name) if isinstance(rest, cst.If) else _block_makes(rest.body, name)
        )
    made = alone(statement)
    if not isinstance(made, cst.Assign) or [place(each.target) for each in made.targets] != [name]:
        return isinstance(made, cst.Raise)
    return not meets(reads(made.value), frozenset({name}))


def _block_makes(block: cst.BaseSuite, name: str) -> bool:
    for statement in block.body:
        if _makes(statement, name):
            return True
        if meets(reads(statement), frozenset({name})):
            return False
    return False


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


def _sites(ctx: Context, call: cst.Call) -> Iterator[tuple[Context, cst.Call, str | None]]:
    """Where it wraps, and the place of what: `wrapper(model)` for `wrapper = partial(FSDP, ...)`."""
    if not is_factory(ctx, call):
        yield ctx, call, wrapped_place(ctx, call)
        return
    over = mapped_over(ctx, call)
    if over is not None:
        yield ctx, over, next(looped_over(over.args[1].value), None)
    for where, site in calls_of_partial(ctx, call):
        yield where, site, wrapped_place(where, site)


def _early(step: Step, inner: tuple[Step, ...], depth: int) -> Iterator[Early]:
    ctx, site, model = step.file, step.site, step.model
    holders = references_above(ctx, site, model)
    if inner:
        holders = (*holders, *references_in(ctx, site, model))
    holders = tuple(each for each in holders if not _is_of_another_run(each.call, site, ctx))
    if holders:
        yield Early(ctx, site, model, holders, inner)
    names = [model, *(name for name, is_whole in other_names(ctx, site, model) if is_whole)] if depth else []
    outside = dict.fromkeys(found for name in names for found in _outside(ctx, site, name))
    for where, caller, outer in outside:
        yield from _early(Step(where, caller, outer), (*inner, step), depth - 1)


def _is_of_another_run(holder: cst.BaseExpression, site: cst.Call, ctx: Context) -> bool:
    """Whether a variable is bound where no run of the function that comes to the wrap has been.

    What stands in one loop with it can be of an earlier turn, and what is kept in an attribute of an earlier call.
    """
    assignment = enclosing(ctx, holder, cst.Assign)
    if assignment is None or not all(isinstance(each.target, cst.Name) for each in assignment.targets):
        return False
    if any(isinstance(outer, (cst.For, cst.While)) and contains(ctx, outer, site) for outer in ctx.ancestors(holder)):
        return False
    return ctx.excludes(holder, site)


def _in_own_init(step: Step) -> Iterator[Early]:
    """What `__init__` built before a method wraps `self.model`, where nobody is seen to call that method."""
    ctx, site, model = step.file, step.site, step.model
    if not model.startswith("self."):
        return
    for where, init in own_inits(ctx, site):
        holders = tuple(built_in_own(where, init, model)) if where.path == ctx.path else ()
        if holders:
            yield Early(ctx, site, model, holders, ())


def _outside(ctx: Context, site: cst.Call, model: str) -> Iterator[tuple[Context, cst.Call, str]]:
    """The calls that lead here, with the place that the model has there."""
    name, _, rest = model.partition(".")
    ways = ToldWays(ctx, site)
    function = ctx.scope(site)
    star = function.params.star_arg if isinstance(function, cst.FunctionDef) else None
    given = ctx.passed_to(site, name) if not _is_bound_anew(ctx, site, name) else ()
    if isinstance(star, cst.Param) and star.name.value == name:
        callers = ((where, caller, next(iter(caller.args), None)) for where, caller in ctx.callers(site))
        given = [(where, caller, first.value) for where, caller, first in callers if first and first.keyword is None]
    for where, caller, argument in given:
        outer = base(argument)
        if outer is not None and ways.lead_from(caller):
            yield where, caller, f"{outer}.{rest}" if rest else outer
    if rest and name == "self":
        for where, caller in ctx.callers(site):
            receiver = place(caller.func.value) if isinstance(caller.func, cst.Attribute) else None
            if receiver is not None:
                yield where, caller, f"{receiver}.{rest}"
        for where, made in constructions(ctx, site):
            yield from ((where, made, outer) for outer in given_as(where, made, f".{rest}"))


def _is_bound_anew(ctx: Context, site: cst.Call, name: str) -> bool:
    """Whether a variable of the function is something else at a call than what the function was given."""
    given = (node for argument in site.args for node in ctx.inside(argument.value))
    use = next((node for node in given if isinstance(node, cst.Name) and node.value == name), None)
    bound = ctx.bound(use) if use is not None else None
    return bound is not None and not any(meets(reads(value), frozenset({name})) for _, value in bound)


# Whether a call of a function can come to a place in it, by the constants that it is called with.

_EQUAL = {cst.Equal: True, cst.Is: True, cst.NotEqual: False, cst.IsNot: False}


class ToldWays:
    """The ways to one place, for all the calls that run the function around it."""

    def __init__(self, ctx: Context, site: cst.CSTNode) -> None:
        self._ctx = ctx
        self._asked = list(on_the_way(ctx, site))
        self._given: dict[cst.Name, Mapping[cst.Call, str]] = {}

    def lead_from(self, call: cst.Call) -> bool:
        """False where `wrap(model, use_fsdp=False)` calls a function that has left by then, or branches elsewhere."""
        asked = ((combined(test, lambda part: self._value(part, call)), holds) for test, holds in self._asked)
        return not any(value is (not holds) for value, holds in asked)

    def _value(self, test: cst.BaseExpression, call: cst.Call) -> bool | None:
        """What a part of a condition is in the run that a call starts; None where that is not seen."""
        compared = comparison(test)
        if compared is not None:
            left, operator, right = compared
            equal, wanted = _EQUAL.get(type(operator)), _literal(self._ctx.code(right))
            given = self._told(left, call) if equal is not None and wanted is not None else None
            return None if given is None else (given == wanted) is equal
        told = self._told(test, call)
        return None if told is None else bool(told[0])

    def _told(self, node: cst.BaseExpression, call: cst.Call) -> tuple[object] | None:
        """The constant that a call gives for a parameter, which the function does not bind anew."""
        if not isinstance(node, cst.Name):
            return None
        if node not in self._given:
            function = enclosing(self._ctx, node, cst.FunctionDef)
            is_bound = function is None or any(_is_bound(each, node.value) for each in self._ctx.inside(function))
            passed = () if is_bound else self._ctx.passed_to(node, node.value)
            self._given[node] = {caller: where.code(argument) for where, caller, argument in reversed(passed)}
        text = self._given[node].get(call)
        return None if text is None else _literal(text)


def on_the_way(ctx: Context, site: cst.CSTNode) -> Iterator[tuple[cst.BaseExpression, bool]]:
    """The conditions that are asked before a place is reached, within its function, and what they have to be."""
    for inner, outer in upward(ctx, site):
        if isinstance(outer, (cst.If, cst.IfExp)) and inner is not outer.test:
            yield outer.test, inner is outer.body
        elif isinstance(outer, cst.IndentedBlock):
            for statement in outer.body:
                if statement is inner:
                    break
                if isinstance(statement, cst.If) and statement.orelse is None and leaves(statement.body):
                    yield statement.test, False
        if isinstance(outer, (cst.FunctionDef, cst.ClassDef, cst.Lambda)):
            return


def _is_bound(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Name) and node.target.value == name


def _literal(text: str) -> tuple[object] | None:
    try:
        return (ast.literal_eval(text),)
    except (SyntaxError, ValueError):
        return None
