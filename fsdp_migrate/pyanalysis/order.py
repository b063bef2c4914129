"""What always runs before what, over the calls of a program: `trainer.load()`, and below it `trainer.wrap()`."""

from __future__ import annotations

import libcst as cst

from .definitions import class_of
from .tree import Tree
from .values import Values

_CALLS_UP = 4
"""Over how many calls a place is followed to the function that both places come from."""


class Order:
    """Answers for one program."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def precedes(
        self, tree: Tree, first: cst.CSTNode, other_tree: Tree, second: cst.CSTNode, ups: int = _CALLS_UP
    ) -> bool:
        """Whether `first` never runs again once `second` has run, for the objects of one run of what holds both."""
        scope, other = tree.scope_of[first].node, other_tree.scope_of[second].node
        if scope is other:
            return self._stands_before(tree, first, second) and self._runs_once(tree, scope, ups)
        if not ups:
            return False
        callers = self._callers(other_tree, other)
        if callers and all(self.precedes(tree, first, where, call, ups - 1) for where, call in callers):
            return True
        callers = self._callers(tree, scope)
        return bool(callers) and all(self.precedes(where, call, other_tree, second, ups - 1) for where, call in callers)

    def _stands_before(self, tree: Tree, first: cst.CSTNode, second: cst.CSTNode) -> bool:
        if tree.contains(first, second):
            return False  # `use(make(net))`: what is passed is made first
        if tree.order[first] > tree.order[second] and not tree.contains(second, first):
            return False
        loops = (outer for outer in tree.ancestors(second) if isinstance(outer, (cst.For, cst.While)))
        return not any(tree.contains(loop, first) for loop in loops if tree.scope_of[loop] is tree.scope_of[second])

    def _runs_once(self, tree: Tree, scope: cst.CSTNode, ups: int) -> bool:
        if isinstance(scope, (cst.Module, cst.ClassDef)):
            return True
        if not isinstance(scope, cst.FunctionDef):
            return False
        owner = class_of(tree, scope)
        if owner is not None and scope.name.value == "__init__":
            return True  # for one object
        callers = self._callers(tree, scope)
        if not callers:
            return owner is None  # a method that nobody calls is called by a framework, maybe often
        if len(callers) > 1 or not ups:
            return False
        where, call = callers[0]
        loops = (cst.For, cst.While, cst.ListComp, cst.GeneratorExp)
        around = (outer for outer in where.ancestors(call) if where.scope_of[outer] is where.scope_of[call])
        return not any(isinstance(outer, loops) for outer in around) and self._runs_once(
            where, where.scope_of[call].node, ups - 1
        )

    def _callers(self, tree: Tree, scope: cst.CSTNode) -> list[tuple[Tree, cst.Call]]:
        if not isinstance(scope, (cst.FunctionDef, cst.Lambda)):
            return []
        return [(site.tree, site.call) for site in self._values.callers.of(tree, scope)]
