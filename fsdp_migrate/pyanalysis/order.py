"""What always runs before what, over the calls of a program: `trainer.load()`, and below it `trainer.wrap()`."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from .definitions import class_of
from .tree import Tree
from .values import Values

_CALLS_UP = 4
"""Over how many calls a place is followed to the function that both places come from."""


_SETTING_UP = 8
"""Over how many calls the setting of a value is followed."""
_Excludes = Callable[[Tree, cst.CSTNode, Tree, cst.CSTNode], bool]


class Order:
    """Answers for one program."""

    def __init__(self, values: Values, excludes: _Excludes = lambda *_: False) -> None:
        """`excludes` tells whether a run that comes to the one place never comes to the other."""
        self._values = values
        self._excludes = excludes
        self._set_up: dict[tuple[cst.CSTNode, cst.CSTNode, int], bool] = {}

    def precedes(
        self, tree: Tree, first: cst.CSTNode, other_tree: Tree, second: cst.CSTNode, ups: int = _CALLS_UP
    ) -> bool:
        """Whether `first` never runs again once `second` has run, for the objects of one run of what holds both."""
        if self._excludes(tree, first, other_tree, second):
            return True
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

    def is_set_up(
        self, tree: Tree, store: cst.CSTNode, other_tree: Tree, read: cst.CSTNode, ups: int = _SETTING_UP
    ) -> bool:
        """Whether each run of the program that comes to both places makes a setting before it reads it."""
        key = store, read, ups
        if key not in self._set_up:
            self._set_up[key] = self._is_set_up(tree, store, other_tree, read, ups)
        return self._set_up[key]

    def _is_set_up(self, tree: Tree, store: cst.CSTNode, other_tree: Tree, read: cst.CSTNode, ups: int) -> bool:
        scope, other = tree.scope_of[store].node, other_tree.scope_of[read].node
        if scope is other:
            return self._stands_before(tree, store, read)
        if not ups:
            return False
        reading, setting = self._callers(other_tree, other), self._callers(tree, scope)
        if not reading and not setting:
            return _is_entry(tree, scope) and _is_entry(other_tree, other)  # two programs
        if reading and all(self.is_set_up(tree, store, where, call, ups - 1) for where, call in reading):
            return True
        return bool(setting) and all(self.is_set_up(where, call, other_tree, read, ups - 1) for where, call in setting)

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


def _is_entry(tree: Tree, scope: cst.CSTNode) -> bool:
    """Whether a program may begin there: a file, or a function that nobody calls."""
    is_function = isinstance(scope, cst.FunctionDef) and class_of(tree, scope) is None
    return is_function or isinstance(scope, cst.Module)
