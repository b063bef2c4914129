"""Where a value is made: from an expression back to the calls, literals and names that it can come from.

The answer is a set of origins. One origin: the value is known. Several: one of these. An origin without a node:
only run time knows, and `reason` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar, cast

import libcst as cst

from .callers import Callers
from .containers import Containers, Part
from .definitions import last_name, returns
from .flow import comprehension, reaching
from .given_back import GivenBack
from .objects import Objects
from .origin import Origin, in_order
from .program import Program
from .scopes import Binding, Binds, Path
from .solver import Solver
from .symbols import Defined
from .tree import Tree
from .ways import Ways

T = TypeVar("T")

DEEPEST = 1
"""How many questions of the kind "is it the same object?" are followed inside each other, to answer one of them.

Without an end to that, everything in a program would depend on everything.
"""

MAX_ORIGINS = 60
"""Of what has more, only the models are told apart: the batches of a program go everywhere."""
_TOO_MANY = "too many ways lead to its value"


class Values:
    """Answers `origins` for any expression of the program. Follows calls without regard to their context."""

    def __init__(self, program: Program, is_model: Callable[[Origin], bool]) -> None:
        """`is_model` tells what matters even where it is only possible that it comes to a place."""
        self.program = program
        self.solver = Solver(in_order)
        self.callers = Callers(self)
        self.objects = Objects(self)
        self.containers = Containers(self)
        self.given_back = GivenBack(self)
        self.ways = Ways(self)
        self._is_model = is_model
        self._models: dict[tuple[Origin, int], bool] = {}
        self.level = 0
        self._reaching: dict[cst.CSTNode, tuple[Binding, ...]] = {}

    def origins(self, tree: Tree, expression: cst.BaseExpression, path: Path = ()) -> tuple[Origin, ...]:
        """Where the value of `expression`, or a part of it, can be made. Empty when it only depends on itself."""
        question = (expression, path)
        known = self.solver.found((self.level, question))
        if known is not None:
            return known
        rest = Origin(tree, None, _TOO_MANY)
        return self.ask(question, lambda: self._some(tree, expression, path), lambda: [rest])

    def _some(self, tree: Tree, expression: cst.BaseExpression, path: Path) -> Iterable[Origin]:
        """All the origins, or of too many those that matter."""
        ways = self.ways.of_part(tree, expression, path) if path else self.ways.of_whole(tree, expression)
        found = dict.fromkeys(ways)
        if len(found) <= MAX_ORIGINS:
            return found
        kept = [o for o in found if isinstance(o.node, (cst.FunctionDef, cst.ClassDef, cst.Lambda)) or self.is_model(o)]
        return [*kept, Origin(tree, None, _TOO_MANY)]

    def ask(
        self, question: tuple[object, ...], work: Callable[[], Iterable[T]], rest: Callable[[], Iterable[T]] = tuple
    ) -> tuple[T, ...]:
        """The answer to a question, at the level of what asks."""
        return self.solver.ask((self.level, question), partial(self._at, self.level, work), rest)

    def _at(self, level: int, work: Callable[[], Iterable[T]]) -> Iterator[T]:
        before, self.level = self.level, level
        try:
            yield from work()
        finally:
            self.level = before

    def test(self, ask: Callable[[], T], coarsely: Callable[[], T]) -> T:
        """Whether a store, or a call, is of what is followed: `coarsely` where this answers such a question."""
        if self.level == DEEPEST:
            return coarsely()
        self.level += 1
        try:
            return ask()
        finally:
            self.level -= 1

    def plainly(self, ask: Callable[[], T]) -> T:
        """What is found without following stores."""
        before, self.level = self.level, DEEPEST
        try:
            return ask()
        finally:
            self.level = before

    def is_model(self, origin: Origin) -> bool:
        key = (origin, self.level)
        if key in self._models:
            return self._models[key]
        answer, is_whole = self.solver.is_whole(lambda: self.solver.decide(lambda: self._is_model(origin), False))
        if is_whole:
            self._models[key] = answer
        return answer

    def unfinished(self) -> Iterator[cst.CSTNode]:
        """Whose values, or whose callers, are not followed to the end: too much leads there."""
        for key in self.solver.unfinished:
            _, question = cast("tuple[int, tuple[object, ...]]", key)
            yield next(each for each in question if isinstance(each, cst.CSTNode))
        yield from self.callers.cut_short

    def of_part(self, part: Part) -> tuple[Origin, ...]:
        return self.origins(part.tree, part.node, part.path)

    def functions(self, tree: Tree, callee: cst.BaseExpression) -> list[tuple[Tree, cst.FunctionDef]]:
        """The functions of the program that calling this expression can run."""
        found: list[tuple[Tree, cst.FunctionDef]] = []
        for origin in self.callees(tree, callee):
            if isinstance(origin.node, cst.Call):
                found.extend(self.objects.methods_of(origin.tree, origin.node, "__call__"))
            elif isinstance(origin.node, cst.FunctionDef):
                found.append((origin.tree, origin.node))
        return found

    def callees(self, tree: Tree, callee: cst.BaseExpression) -> Iterator[Origin]:
        """What calling this expression can run: of `partial(f, a)` and `staticmethod(f)`, f."""
        callees = {callee: tree}
        for expression, where in (growing := list(callees.items())):
            for origin in self.origins(where, expression):
                node = origin.node
                if not isinstance(node, cst.Call) or not self._hands_on(origin.tree, node):
                    yield origin
                elif node.args[0].value not in callees:
                    callees[node.args[0].value] = origin.tree
                    growing.append((node.args[0].value, origin.tree))

    def results(self, tree: Tree, callee: cst.BaseExpression) -> Iterator[tuple[Tree, cst.BaseExpression]]:
        """What calling this expression returns."""
        for origin in self.callees(tree, callee):
            if isinstance(origin.node, cst.Lambda):
                yield origin.tree, origin.node.body
        for where, function in self.functions(tree, callee):
            for returned in returns(where, function):
                yield where, returned

    def _hands_on(self, tree: Tree, call: cst.Call) -> bool:
        is_method = isinstance(call.func, cst.Name) and call.func.value in {"staticmethod", "classmethod"}
        return (is_method and len(call.args) == 1) or self.is_partial(tree, call)

    def shifts(self, tree: Tree, callee: cst.BaseExpression) -> bool:
        """Whether calling this may give what is first to another parameter than the first: `partial(f, a)`."""
        for origin in self.origins(tree, callee):
            call = origin.node
            if isinstance(call, cst.Call) and self.is_partial(origin.tree, call):
                if any(a.keyword is None for a in call.args[1:]) or self.shifts(origin.tree, call.args[0].value):
                    return True
        return False

    def is_partial(self, tree: Tree, call: cst.Call) -> bool:
        if not call.args or last_name(call.func) != "partial":
            return False
        return self.program.symbols.dotted(tree, call.func) == "functools.partial"

    def bound(self, tree: Tree, name: cst.Name) -> list[tuple[Tree, cst.BaseExpression]] | None:
        """The expressions that a name is bound to where it stands; None where it may be bound in another way."""
        symbol = self.program.symbols.of(tree, name)
        if not isinstance(symbol, Defined) or comprehension(tree, name) is not None:
            return None
        found: list[tuple[Tree, cst.BaseExpression]] = []
        for binding in self.bindings(tree, name, symbol):
            if binding.how is not Binds.VALUE or binding.value is None or binding.path:
                return None
            found.append((symbol.tree, binding.value))
        return found or None

    def bindings(self, tree: Tree, use: cst.CSTNode, symbol: Defined) -> Iterable[Binding]:
        if symbol.tree is tree and tree.scope_of[use].lookup(symbol.name) is symbol.scope:
            if use not in self._reaching:
                self._reaching[use] = reaching(tree, use, symbol.name)
            return self._reaching[use]
        return symbol.scope.bindings[symbol.name]
