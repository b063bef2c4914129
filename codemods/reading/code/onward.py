"""What the program comes to behind a place: the calls on every way from there, until one of them ends the way.

Loops run again, functions go on behind their calls, and a branch whose condition is known on the way is not taken twice
in two ways. Whoever asks says which calls he looks for and which ones end a way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import upward
from codemods.reading.code.facts import NOTHING, Facts, answer, facts_of, without
from codemods.reading.code.shapes import callee

_LINES = (cst.SimpleStatementLine, cst.SimpleStatementSuite)
_BLOCKS = (cst.IndentedBlock, cst.Module, *_LINES)


_STARTS = frozenset({"torch.distributed.elastic.multiprocessing.errors.record", "hydra.main"})
"""Decorators of what a script starts: they run it once."""


class Exit(Enum):
    """How a statement is left."""

    BEHIND = "behind it"
    AGAIN = "by continue"
    BREAK = "by break"
    RETURN = "by return"


Exits = dict[Exit, Facts]
Asked = Callable[[cst.CSTNode, Context], bool]


@dataclass
class Way:
    """The ways on from one place, or from several."""

    looks_for: Asked
    """Of a call, or of what is assigned to: whether it is one of those that are looked for. The way ends with it."""
    ends: Asked
    """Of the same, and of statements: whether no way leads on behind it."""
    found: list[tuple[Context, cst.CSTNode]] = field(default_factory=list)
    lost: list[tuple[Context, cst.FunctionDef]] = field(default_factory=list)
    """The functions that a way leaves, and nobody is seen to call."""
    last_turns: frozenset[cst.CSTNode] = frozenset()
    """The loops that are not left by their last turn: what it does ends the way."""
    _falls: dict[cst.CSTNode, Facts | None] = field(default_factory=dict)
    _left: set[tuple[cst.CSTNode, Facts]] = field(default_factory=set)

    def behind(self, node: cst.CSTNode, ctx: Context, facts: Facts = NOTHING) -> None:
        """Follow every way on from behind a node."""
        exits: Exits = {Exit.BEHIND: facts}
        for inner, outer in upward(ctx, node):
            if isinstance(outer, _BLOCKS):
                if isinstance(inner, cst.Return):
                    exits = {Exit.RETURN: facts}
                body: Sequence[cst.CSTNode] = outer.body
                exits = self._then(exits, body[list(body).index(inner) + 1 :], ctx)
            elif isinstance(outer, (cst.For, cst.While)) and inner is outer.body:
                exits = self._next_turns(outer, exits, ctx)
            elif isinstance(outer, cst.If) or (
                isinstance(outer, (cst.For, cst.While, cst.With)) and inner is not outer.body
            ):
                exits = self._headed(outer, inner, exits, ctx)
            elif isinstance(outer, cst.Try) and outer.finalbody is not None and inner is not outer.finalbody:
                exits = self._then(exits, outer.finalbody.body.body, ctx)
            elif isinstance(outer, cst.FunctionDef):
                self._leave(outer, exits, ctx)
                return
            elif isinstance(outer, (cst.Lambda, cst.ClassDef)):
                return
            if not exits:
                return

    def _headed(
        self, outer: cst.For | cst.While | cst.If | cst.With, inner: cst.CSTNode, exits: Exits, ctx: Context
    ) -> Exits:
        """Behind the head of a statement comes what it holds; behind a branch, nothing of it but what it asked."""
        if isinstance(outer, cst.With):
            return self._then(exits, [outer.body], ctx)
        if isinstance(outer, cst.If) and inner is not outer.test:
            asked = _behind(inner, facts_of(outer.test, inner is outer.body, ctx))
            return {each: facts | asked for each, facts in exits.items()}
        if inner is outer.orelse or Exit.BEHIND not in exits:
            return exits
        if isinstance(outer, cst.If):
            return self._if(outer, exits[Exit.BEHIND], ctx)
        return self._loop(outer, exits[Exit.BEHIND], ctx)

    def _then(self, exits: Exits, statements: Sequence[cst.CSTNode], ctx: Context) -> Exits:
        if Exit.BEHIND not in exits or not statements:
            return exits
        others: Exits = {each: facts for each, facts in exits.items() if each != Exit.BEHIND}
        return _joined(others, self._block(statements, exits[Exit.BEHIND], ctx))

    def _next_turns(self, loop: cst.For | cst.While, exits: Exits, ctx: Context) -> Exits:
        again = [exits[each] for each in (Exit.BEHIND, Exit.AGAIN) if each in exits]
        left: Exits = {}
        if again:
            known = frozenset.intersection(*again)
            left = self._loop(loop, known, ctx)
            if loop in self.last_turns:
                left.pop(Exit.BEHIND, None)
        if Exit.BREAK in exits:
            left = _joined(left, {Exit.BEHIND: exits[Exit.BREAK]})
        return _joined(left, {Exit.RETURN: exits[Exit.RETURN]}) if Exit.RETURN in exits else left

    def _leave(self, function: cst.FunctionDef, exits: Exits, ctx: Context) -> None:
        known = [exits[each] for each in (Exit.BEHIND, Exit.RETURN) if each in exits]
        told = frozenset.intersection(*known) if known else NOTHING
        if not known or (function, told) in self._left:
            return
        self._left.add((function, told))
        callers = ctx.callers(function.body)
        if not callers or any(ctx.dotted(callee(each.decorator)) not in _STARTS for each in function.decorators):
            self.lost.append((ctx, function))
        for where, call in callers:
            self.behind(call, where, _told(function, call, told, where))

    def _block(self, statements: Iterable[cst.CSTNode], facts: Facts, ctx: Context) -> Exits:
        exits: Exits = {}
        for statement in statements:
            left = self._statement(statement, facts, ctx)
            exits = _joined(exits, {each: known for each, known in left.items() if each is not Exit.BEHIND})
            if Exit.BEHIND not in left:
                return exits
            facts = left[Exit.BEHIND]
        return _joined(exits, {Exit.BEHIND: facts})

    def _statement(self, node: cst.CSTNode, facts: Facts, ctx: Context) -> Exits:
        if self.ends(node, ctx):
            return {}
        if isinstance(node, _BLOCKS):
            return self._block(node.body, facts, ctx)
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            return {Exit.BEHIND: facts}
        if isinstance(node, cst.If):
            learned = self._runs(node.test, ctx)
            return {} if learned is None else self._if(node, facts | learned, ctx)
        if isinstance(node, (cst.For, cst.While)):
            learned = self._runs(node.iter if isinstance(node, cst.For) else node.test, ctx)
            return {} if learned is None else self._loop(node, facts | learned, ctx)
        if isinstance(node, cst.With):
            runs = all(self._runs(item, ctx) is not None for item in node.items)
            return self._statement(node.body, facts, ctx) if runs else {}
        if isinstance(node, cst.Try):
            return self._try(node, facts, ctx)
        if isinstance(node, cst.Match):
            cases = [self._statement(case.body, facts, ctx) for case in node.cases]
            return _joined({Exit.BEHIND: facts}, *cases)
        return self._small(node, facts, ctx)

    def _if(self, node: cst.If, facts: Facts, ctx: Context) -> Exits:
        known = answer(node.test, facts, ctx)
        taken = self._statement(node.body, facts | facts_of(node.test, True, ctx), ctx) if known is not False else {}
        if known is True:
            return taken
        facts |= facts_of(node.test, False, ctx)
        other = node.orelse.body if isinstance(node.orelse, cst.Else) else node.orelse
        return _joined(taken, self._statement(other, facts, ctx) if other is not None else {Exit.BEHIND: facts})

    def _loop(self, node: cst.For | cst.While, facts: Facts, ctx: Context) -> Exits:
        facts = _behind(node, facts)
        turn = self._statement(node.body, facts, ctx)
        left: Exits = {Exit.BEHIND: facts}
        if node.orelse is not None:
            left = self._statement(node.orelse.body, facts, ctx)
        if Exit.BREAK in turn:
            left = _joined(left, {Exit.BEHIND: turn[Exit.BREAK]})
        return _joined(left, {Exit.RETURN: turn[Exit.RETURN]}) if Exit.RETURN in turn else left

    def _try(self, node: cst.Try, facts: Facts, ctx: Context) -> Exits:
        exits = self._statement(node.body, facts, ctx)
        facts = _behind(node.body, facts)
        handlers = [self._statement(handler.body, facts, ctx) for handler in node.handlers]
        exits = _joined(exits, *handlers)
        if node.orelse is not None:
            exits = self._then(exits, node.orelse.body.body, ctx)
        return self._then(exits, node.finalbody.body.body, ctx) if node.finalbody is not None else exits

    def _small(self, node: cst.CSTNode, facts: Facts, ctx: Context) -> Exits:
        learned = self._runs(node, ctx)
        if learned is None:
            return {}
        facts |= learned
        if isinstance(node, cst.Return):
            return {Exit.RETURN: facts}
        if isinstance(node, cst.Break):
            return {Exit.BREAK: facts}
        if isinstance(node, cst.Continue):
            return {Exit.AGAIN: facts}
        return {} if isinstance(node, cst.Raise) else {Exit.BEHIND: _behind(node, facts)}

    def _runs(self, node: cst.CSTNode, ctx: Context) -> Facts | None:
        """What is known when a way leads through all that an expression calls; None when no way does."""
        inside = ctx.inside(node)
        perhaps = {each for inner in inside for part in _perhaps(inner) for each in ctx.inside(part)}
        known = NOTHING
        for inner in inside:
            if not isinstance(inner, (cst.Call, cst.AssignTarget)):
                continue
            learned: Facts | None = None
            if self.looks_for(inner, ctx):
                self.found.append((ctx, inner))
            elif not self.ends(inner, ctx):
                learned = self._returns(inner, ctx) if isinstance(inner, cst.Call) else NOTHING
            if inner in perhaps:
                continue
            if learned is None:
                return None
            known |= learned
        return known

    def _returns(self, call: cst.Call, ctx: Context) -> Facts | None:
        """What is known of the arguments of a call when it returns; None when no function does that it can run."""
        functions = ctx.runs(call)
        passed = [(function, self.passes(function, where)) for where, function in functions]
        told = [_told(function, call, facts, ctx) for function, facts in passed if facts is not None]
        if told:
            return frozenset.intersection(*told)
        return None if functions else NOTHING

    def passes(self, function: cst.FunctionDef, ctx: Context) -> Facts | None:
        if function not in self._falls:
            self._falls[function] = NOTHING  # while it is asked, for one that calls itself
            exits = self._statement(function.body, NOTHING, ctx)
            known = [exits[each] for each in (Exit.BEHIND, Exit.RETURN) if each in exits]
            self._falls[function] = frozenset.intersection(*known) if known else None
        return self._falls[function]


def _perhaps(node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """What of an expression is not always run: both sides of `a if c else b`, the second one of `a and b`."""
    if isinstance(node, cst.IfExp):
        return (node.body, node.orelse)
    if isinstance(node, cst.BooleanOperation):
        return (node.right,)
    return (node,) if isinstance(node, (cst.Lambda, cst.BaseComp)) else ()


def _joined(*all_exits: Exits) -> Exits:
    """What is known whichever of several ways was taken."""
    joined: Exits = {}
    for exits in all_exits:
        for each, facts in exits.items():
            joined[each] = joined[each] & facts if each in joined else facts
    return joined


def _behind(node: cst.CSTNode, facts: Facts) -> Facts:
    """What is still known when this has run."""
    return without(facts, set_in(node)) if facts else facts


def set_in(node: cst.CSTNode) -> set[str]:
    """The names and attributes that a statement sets, and what stands in it."""
    if isinstance(node, (cst.AssignTarget, cst.AugAssign, cst.NamedExpr, cst.For, cst.AsName)):
        target = node.name if isinstance(node, cst.AsName) else node.target
        return _last_names(target).union(*map(set_in, node.children))
    return set().union(*map(set_in, node.children))


def _last_names(target: cst.CSTNode) -> set[str]:
    if isinstance(target, cst.Attribute):
        return {target.attr.value}
    if isinstance(target, cst.Subscript):
        return _last_names(target.value)
    if isinstance(target, cst.Name):
        return {target.value}
    return set().union(*map(_last_names, target.children))


def _told(function: cst.FunctionDef, call: cst.Call, facts: Facts, where: Context) -> Facts:
    """What a caller knows of its own arguments, by what was found out about the parameters."""
    facts = _behind(function.body, facts)
    if not facts:
        return NOTHING
    parameters = [parameter.name.value for parameter in function.params.params]
    if parameters[:1] == ["self"]:
        parameters = parameters[1:]
    given = {
        parameter: arg.value
        for parameter, arg in zip(parameters, call.args, strict=False)
        if not (arg.keyword or arg.star)
    }
    given |= {arg.keyword.value: arg.value for arg in call.args if arg.keyword is not None}
    told = [facts_of(given[fact.text], fact.holds, where) for fact in facts if fact.text in given]
    return NOTHING.union(*told)
