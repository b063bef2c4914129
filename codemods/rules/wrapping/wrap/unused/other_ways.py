"""Layers that one way through a model's `forward` runs and another does not: `if head == "pi": return self.pi(x)`.

Which way it takes has to be decided by an argument that the program's calls of the model give differently, by an
attribute that something sets when the model is made, by the values of a batch, or by a throw of the dice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.code.arguments import by_parameter
from codemods.reading.code.enclosing import is_without_gradients
from codemods.reading.code.once import once
from codemods.reading.code.places import place
from codemods.reading.code.shapes import called_on, comparison, is_call_to, parameter_names
from codemods.reading.code.words import is_name

from .chosen_layers import asks_a_switch, decides_by_values
from .held_layers import Method, held_modules, layers_and_methods

_MANY = 64
"""A `forward` with more ways is not read."""
_NOTHING = frozenset({"", "None", "False"})
_ASKING = (cst.BooleanOperation, cst.Comparison, cst.IfExp, cst.UnaryOperation)
_CHOOSING = (cst.IfExp, cst.BooleanOperation, cst.While, cst.Lambda, cst.Try, cst.CompFor, cst.Match)
_LEAVING = (cst.If, cst.IfExp, cst.Break, cst.Continue, cst.Match)
_LITERALS = (cst.BaseNumber, cst.SimpleString)


class _Value(NamedTuple):
    text: str
    node: cst.BaseExpression | None


_NOT_GIVEN = _Value("", None)
_OPEN = _Value("**", None)


@dataclass(frozen=True)
class _Way:
    """The layers that are run on one way through `forward`, and how the tests on it come out."""

    layers: frozenset[str] = frozenset()
    tests: frozenset[tuple[str, bool]] = frozenset()
    is_over: bool = False


def leaving_layers(ctx: Context, call: cst.Call, owner: tuple[Context, cst.ClassDef]) -> Iterator[cst.ClassDef]:
    """The classes through whose `forward` training a model takes two ways, of which one leaves out a layer.

    The model's own, and those whose objects its forward calls itself: `return self.net(x, head)`.
    """
    forward = layers_and_methods(*owner)[1].get("forward")
    if forward is None:
        return
    inner = [(run, each) for run, each in _called(forward) if _chooses(each)]
    if not inner and not _chooses(owner):
        return
    given = list(_given(ctx, call, parameter_names(forward.node)[1:]))
    if _leaves(owner, _asked(owner, given)):
        yield owner[1]
    for run, each in inner:
        if _leaves(each, _asked(each, _handed_on(run, each, forward, given))):
            yield each[1]


@once
def leaves_by_values(ctx: Context, owner: cst.ClassDef) -> bool:
    """Whether what a tensor holds, or a throw of the dice, decides which layers a class runs.

    Wherever it is in a model: `if mask.any(): x = self.proj(x)`, `if torch.rand(1) < 0.5: return x`.
    """
    layers, methods = layers_and_methods(ctx, owner)
    forward = methods.get("forward")
    if forward is None or not layers:
        return False
    asked = {forward.ctx.code(test) for test in _tests(forward) if decides_by_values(test, forward, methods)}
    if asked and _leaves((ctx, owner), asked):
        return True
    runs = _runs(layers, methods)
    choices = [node for node in forward.ctx.inside(forward.node.body) if isinstance(node, cst.IfExp)]
    differing = [c.test for c in choices if _run_in(c.body, forward, runs) != _run_in(c.orelse, forward, runs)]
    loops = [node for node in forward.ctx.inside(forward.node.body) if isinstance(node, cst.While)]
    differing += [loop.test for loop in loops if _run_in(loop.body, forward, runs)]
    return any(decides_by_values(test, forward, methods) for test in differing)


@once
def runs_all_or_nothing(ctx: Context, owner: cst.ClassDef) -> bool:
    """Whether each way through `forward` runs all that a class holds, or none of it: stochastic depth of a block.

    FSDP1 had no zeros for a unit that was not run: its gradients were None, as with FSDP2.
    """
    _, methods = layers_and_methods(ctx, owner)
    forward = methods.get("forward")
    if forward is None:
        return False
    tests = [forward.ctx.code(test) for test in _tests(forward)]
    if len({*tests}) < len(tests):
        return False  # two throws of the dice
    held = {f"self.{name}" for name in held_modules(ctx, owner)}
    if any(is_call_to(node, "getattr") for each in methods.values() for node in each.ctx.inside(each.node.body)):
        return False  # `getattr(self, task)(x)`
    others = [method for name, method in methods.items() if name != "forward" and not held.isdisjoint(method.uses)]
    if any(isinstance(node, cst.If) for method in others for node in method.ctx.inside(method.node.body)):
        return False
    uses = [(m, use) for m in (forward, *others) for layer in held for use in m.uses_of(layer)]
    if any(_is_part_of_a_choice(use, method) for method, use in uses):
        return False
    ways = _ways(forward.node.body.body, [_Way()], forward, _runs(sorted(held), methods))
    return bool(held) and bool(ways) and all(way.layers in (frozenset(), held) for way in ways)


def _is_part_of_a_choice(use: cst.CSTNode, method: Method) -> bool:
    """Whether a layer is one of several, or stands in what `_ways` takes for one statement and may leave it out."""
    ctx = method.ctx
    if isinstance(ctx.parent(use), cst.Subscript):
        return True
    around = takewhile(lambda node: node is not method.node, ctx.ancestors(use))
    return any(
        isinstance(outer, _CHOOSING)
        or (isinstance(outer, cst.For) and any(isinstance(node, _LEAVING) for node in ctx.inside(outer.body)))
        for outer in around
    )


def _run_in(part: cst.CSTNode, forward: Method, runs: dict[str, frozenset[str]]) -> frozenset[str]:
    """The layers that stand in a part of a `forward`."""
    places = filter(None, map(place, forward.ctx.inside(part)))
    return frozenset[str]().union(*(runs.get(each, ()) for each in places))


def _chooses(owner: tuple[Context, cst.ClassDef]) -> bool:
    forward = layers_and_methods(*owner)[1].get("forward")
    return forward is not None and any(isinstance(node, cst.If) for node in forward.ctx.inside(forward.node.body))


def _called(forward: Method) -> Iterator[tuple[cst.Call, tuple[Context, cst.ClassDef]]]:
    """The calls of what the model itself holds, with the class of the program that it is of."""
    for run in forward.ctx.inside(forward.node.body):
        if not isinstance(run, cst.Call) or not isinstance(run.func, cst.Attribute) or place(run.func) is None:
            continue
        for made in forward.ctx.origins(run.func):
            if isinstance(made.node, cst.Call):
                found = made.file.origins(made.node.func)
                yield from ((run, (each.file, each.node)) for each in found if isinstance(each.node, cst.ClassDef))


def _handed_on(
    run: cst.Call, owner: tuple[Context, cst.ClassDef], forward: Method, given: Sequence[dict[str, _Value]]
) -> list[dict[str, _Value]]:
    """What such a call gives, for each call of the model: what came for a parameter of its forward, or what it says."""
    own = parameter_names(forward.node)[1:]
    names = parameter_names(layers_and_methods(*owner)[1]["forward"].node)[1:]
    arguments = by_parameter([each for each in run.args if each.star != "**"], names) or {}
    is_open = any(each.star == "**" for each in run.args)  # `self.net(**batch)`
    others = {name: _OPEN for name in names if is_open and name not in arguments}

    def value(argument: cst.BaseExpression, outer: dict[str, _Value]) -> _Value:
        if isinstance(argument, cst.Name) and argument.value in own:
            return outer.get(argument.value, _NOT_GIVEN)
        return _Value(forward.ctx.code(argument), argument)

    return [others | {name: value(each.value, outer) for name, each in arguments.items()} for outer in given]


def _tests(forward: Method) -> list[cst.BaseExpression]:
    return [node.test for node in forward.ctx.inside(forward.node.body) if isinstance(node, cst.If)]


def _asked(owner: tuple[Context, cst.ClassDef], given: Sequence[dict[str, _Value]]) -> set[str]:
    """The tests of a `forward` that come out both ways for what the calls give."""
    forward = layers_and_methods(*owner)[1]["forward"]
    return {forward.ctx.code(test) for test in _tests(forward) if _comes_out_both_ways(test, given, forward)}


def _leaves(owner: tuple[Context, cst.ClassDef], asked: set[str]) -> bool:
    """Whether two ways that differ by these tests alone run other layers."""
    layers, methods = layers_and_methods(*owner)
    forward = methods["forward"]
    ways = _ways(forward.node.body.body, [_Way()], forward, _runs(layers, methods)) if asked else []
    otherwise = [{(test, not holds) for test, holds in way.tests if test not in asked} for way in ways]
    return any(
        way.layers - other.layers and excluded.isdisjoint(other.tests)
        for way, excluded in zip(ways, otherwise, strict=True)
        for other in ways
    )


def _given(ctx: Context, call: cst.Call, names: Sequence[str]) -> Iterator[dict[str, _Value]]:
    """What each call of a model, outside of an evaluation, gives for the parameters of its forward."""
    for where in ctx.files("backward"):
        for run in where.nodes(cst.Call):
            if ModelKind.FSDP not in where.kinds(run.func) or is_without_gradients(run, where):
                continue
            found = by_parameter(run.args, names)
            if found is not None and any(origin.node is call for origin in where.origins(run.func)):
                yield {name: _Value(where.code(each.value), each.value) for name, each in found.items()}


def _comes_out_both_ways(test: cst.BaseExpression, given: Sequence[dict[str, _Value]], forward: Method) -> bool:
    """Whether a test of a switch, of a parameter by itself, or of what one is compared with, is not always the same."""
    if asks_a_switch(test, forward.node, forward.ctx) or _asks_for_a_key(test, forward):
        return True
    if isinstance(test, cst.BooleanOperation):
        return any(_comes_out_both_ways(side, given, forward) for side in (test.left, test.right))
    if isinstance(test, cst.UnaryOperation):
        return _comes_out_both_ways(test.expression, given, forward)
    compared = comparison(test)
    asked = compared[0] if compared is not None else test
    values = [each.get(asked.value, _NOT_GIVEN) for each in given] if isinstance(asked, cst.Name) else []
    if compared is None or is_name(compared[2], "None"):
        is_chosen = any(
            value is _OPEN or isinstance(value.node, _ASKING) or called_on(value.node, "get", "pop") for value in values
        )
        return is_chosen or len({value.text in _NOTHING for value in values}) > 1
    is_open = any(not isinstance(value.node, _LITERALS) for value in values if value is not _NOT_GIVEN)
    return is_open or len({value.text for value in values}) > 1


def _asks_for_a_key(test: cst.BaseExpression, forward: Method) -> bool:
    """`if "image" in batch:`, of what `forward` is given."""
    compared = comparison(test)
    is_key = compared is not None and isinstance(compared[1], (cst.In, cst.NotIn))
    of = compared[2] if compared is not None else None
    return is_key and isinstance(of, cst.Name) and of.value in parameter_names(forward.node)


def _runs(layers: Sequence[str], methods: dict[str, Method]) -> dict[str, frozenset[str]]:
    """The layers that stand behind each `self.name` of a class: its own, or all that a method reads."""
    runs = {layer: frozenset({layer}) for layer in layers}
    for _ in methods:  # a method of a method
        for name, method in methods.items():
            runs[f"self.{name}"] = frozenset().union(*(runs.get(read, ()) for read in method.uses))
    return runs


def _ways(
    statements: Sequence[cst.CSTNode], ways: list[_Way], forward: Method, runs: dict[str, frozenset[str]]
) -> list[_Way]:
    """Where some ways lead through statements; a loop, and what is tried, is gone through once, and as a whole."""
    for statement in statements:
        over, ways = [way for way in ways if way.is_over], [way for way in ways if not way.is_over]
        if len(ways) + len(over) > _MANY:
            return []
        if isinstance(statement, cst.If):
            ways = _branches(statement, ways, forward, runs)
        elif isinstance(statement, cst.With):
            ways = _ways(statement.body.body, ways, forward, runs)
        else:
            last = statement.body[-1] if isinstance(statement, cst.SimpleStatementLine) else statement
            read = _run_in(statement, forward, runs)
            ended = [replace(way, layers=way.layers | read, is_over=isinstance(last, cst.Return)) for way in ways]
            ways = ended if not isinstance(last, cst.Raise) else []
        ways += over
    return ways


def _branches(choice: cst.If, ways: list[_Way], forward: Method, runs: dict[str, frozenset[str]]) -> list[_Way]:
    test, orelse = forward.ctx.code(choice.test), choice.orelse
    sides = [
        [replace(way, tests=way.tests | {(test, holds)}) for way in ways if (test, not holds) not in way.tests]
        for holds in (True, False)
    ]
    taken = _ways(choice.body.body, sides[0], forward, runs)
    if isinstance(orelse, cst.If):
        return taken + _branches(orelse, sides[1], forward, runs)
    return taken + (_ways(orelse.body.body, sides[1], forward, runs) if orelse is not None else sides[1])
