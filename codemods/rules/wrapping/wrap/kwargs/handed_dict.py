"""The way of a dict from where it is made to the function that spreads it into a constructor call."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import libcst as cst

from codemods.api import Context, NotStatic
from codemods.reading.code.words import last_name

from .spread import unseen

_DEPTH = 4
"""How many functions hand it on."""


@dataclass
class Way:
    """Where else than where it is made, and than at the call, a dict can be met."""

    scopes: list[tuple[Context, cst.CSTNode]] = field(default_factory=list)
    """The functions that it comes through."""
    names: set[str] = field(default_factory=set)
    """What it is called there."""
    handed: set[cst.CSTNode] = field(default_factory=set)
    """The arguments by which it is handed on, to the next of these functions and to no other."""
    is_attribute: bool = False
    """Whether an attribute holds it on the way, which all of the program can reach."""


def way_of(
    ctx: Context, call: cst.CSTNode, value: cst.BaseExpression, displays: Collection[cst.BaseExpression] = ()
) -> Way:
    """Raises NotStatic where a call passes what is not followed."""
    found = Way()
    if isinstance(value, cst.Name):
        _through_parameter(ctx, call, value, unseen(ctx, value), found, _DEPTH)
        _through_returns(ctx, (made for _, made in ctx.bound(value) or ()), displays, found)
    else:
        _through_returns(ctx, [value], displays, found)
    return found


def _through_returns(
    ctx: Context, made: Iterable[cst.BaseExpression], displays: Collection[cst.BaseExpression], found: Way
) -> None:
    """Add the functions that take the dict from the one that makes it, and give it on: `kw = super().kw()`."""
    for call in made:
        for where, function in ctx.runs(call) if isinstance(call, cst.Call) else ():
            inside = where.inside(function.body)
            if (where, function) in found.scopes or not set(displays).isdisjoint(inside):
                continue
            taken = [node for node in inside if isinstance(node, cst.Assign) and isinstance(node.value, cst.Call)]
            taken = [node for node in taken if any(o.node in displays for o in where.origins(node.value))]
            given = [node.value for node in inside if isinstance(node, cst.Return) and node.value is not None]
            found.scopes.append((where, function))
            found.names |= {last_name(node.targets[0].target) for node in taken}
            _through_returns(where, [*(node.value for node in taken), *given], displays, found)


def _through_parameter(
    ctx: Context, at: cst.CSTNode, name: cst.Name, unread: NotStatic, found: Way, depth: int
) -> bool:
    """Follow what is passed for a parameter; whether a name is one, of the function that `at` stands in."""
    function = _with_parameter(ctx, at, name.value)
    if function is None:
        return False
    if depth == 0:
        raise unread
    for where, call, given in ctx.passed_to(function.body, name.value):
        if _runs_only(call, function, where):
            found.handed.add(given)
        _follow(where, given, unread, found, depth - 1)
    return True


def _runs_only(call: cst.Call, function: cst.FunctionDef, ctx: Context) -> bool:
    """Whether a call that runs a function runs no other; one of a class runs the `__init__` of that."""
    run = {each for _, each in ctx.runs(call)}
    return run == {function} or (not run and len({origin.node for origin in ctx.origins(call.func)}) == 1)


def _with_parameter(ctx: Context, at: cst.CSTNode, name: str) -> cst.FunctionDef | None:
    """The function around whose parameter a name means."""
    for outer in ctx.ancestors(at):
        if not isinstance(outer, cst.FunctionDef):
            continue
        if any(each.name.value == name for each in (*outer.params.params, *outer.params.kwonly_params)):
            return outer
        if ctx.is_local(name, outer.body):
            return None
    return None


def _follow(ctx: Context, given: cst.BaseExpression, unread: NotStatic, found: Way, depth: int) -> None:
    """Note where an argument comes from: a display, or a call that returns one, is nobody else's."""
    if isinstance(given, (cst.Dict, cst.Call)):
        return
    if isinstance(given, cst.Attribute):
        found.is_attribute = True
        found.names.add(given.attr.value)
        return
    if not isinstance(given, cst.Name):
        raise unread
    found.scopes.append((ctx, ctx.scope(given)))
    found.names.add(given.value)
    if _through_parameter(ctx, given, given, unread, found, depth):
        return
    bound = ctx.bound(given)
    if bound is None or depth == 0:
        raise unread
    for where, made in bound:
        _follow(where, made, unread, found, depth - 1)
