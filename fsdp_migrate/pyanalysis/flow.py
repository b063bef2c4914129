"""Which bindings of a name can reach one use of it: reaching definitions over structured Python.

`model = Net()`, then `if wrapped: model = Wrapper(model)`, then `model(x)`: both reach the call. A branch that ends in
`return`, `raise`, `continue` or `break` reaches nothing behind it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

import libcst as cst

from .scopes import Binding, Binds, Scope, turns
from .tree import Tree

State = frozenset[Binding]

_LEAVES = (cst.Return, cst.Raise, cst.Continue, cst.Break)


def reaching(tree: Tree, use: cst.CSTNode, name: str) -> tuple[Binding, ...]:
    """The bindings of `name` that can hold where `use` stands, in the order of the text.

    A name of an outer scope is read later than it is written here, so everything that holds at the
    end of that scope counts.
    """
    own = tree.scope_of[use]
    scope = own.lookup(name)
    if scope is None:
        return ()
    passed = tree.flows.get((scope, name))
    if passed is None:
        passed = tree.flows[scope, name] = _Walk(tree, scope, name)
    found = passed.at(use) if scope is own or _inlined(scope, own) else passed.at_end()
    return tuple(sorted(found, key=lambda binding: tree.order[binding.node]))


def _inlined(scope: Scope, own: Scope) -> bool:
    """A lambda, or a class body, reads an outer name about when it is written: treat it as part of its function."""
    while own is not scope:
        if isinstance(own.node, cst.FunctionDef) or own.parent is None:
            return False
        own = own.parent
    return True


def comprehension(tree: Tree, use: cst.Name) -> Binding | None:
    """The binding of a name by the comprehension that it is used in; None when it is not bound there."""
    if use.value not in tree.bound_in_comprehensions:
        return None
    inner: cst.CSTNode = use
    for outer in tree.ancestors(use):
        if isinstance(outer, (cst.ListComp, cst.SetComp, cst.GeneratorExp, cst.DictComp)):
            part: cst.CompFor | None = outer.for_in
            # The first iterable is read outside of the comprehension.
            outside = part is not None and inner is part and tree.contains(part.iter, use)
            while part is not None and not outside:
                for binding in turns(part):
                    if binding.name == use.value:
                        return binding
                part = part.inner_for_in
        if isinstance(outer, (cst.FunctionDef, cst.Lambda)):
            return None
        inner = outer
    return None


class _Walk:
    """One walk through a scope for one name, which answers for all of its uses."""

    def __init__(self, tree: Tree, scope: Scope, name: str) -> None:
        self._tree = tree
        self._scope = scope
        self._bindings = sorted(scope.bindings[name], key=lambda binding: tree.order[binding.node])
        self._order = [tree.order[binding.node] for binding in self._bindings]
        self._states: dict[cst.CSTNode, State] = {}
        """What holds where each statement, or what a compound one reads first, begins."""
        # Bound from a function by `global` or `nonlocal`: that can run at any time.
        self._anytime = frozenset(binding for binding in self._bindings if self._is_from_inside(binding))
        self._start = frozenset(binding for binding in self._bindings if binding.how is Binds.PARAMETER)
        self._has_body = (body := _body(scope.node)) is not None
        self._end = self._block(body, self._start) if body is not None else self._start

    def at(self, use: cst.CSTNode) -> State:
        """What can hold where a use stands."""
        states, parents, node = self._states, self._tree.parents, use
        while node not in states and node in parents:
            node = parents[node]
        elsewhere = frozenset(self._bindings) if self._has_body else self._start
        return states.get(node, elsewhere) | self._anytime

    def at_end(self) -> State:
        """What can hold when the scope has run."""
        # Several exits (early returns) and module-level code behind `if __name__`: all bindings that survive.
        end = self._end if self._end or not self._has_body else frozenset(self._bindings)
        return (end or frozenset()) | self._anytime

    def _is_from_inside(self, binding: Binding) -> bool:
        return binding.how is not Binds.PARAMETER and self._tree.scope_of[binding.node] is not self._scope

    def _block(self, statements: Iterable[cst.CSTNode], state: State | None) -> State | None:
        for statement in statements:
            if state is None:
                # Unreachable for the walk, but the use may stand here all the same.
                state = frozenset()
            state = self._statement(statement, state)
        return state

    def _statement(self, node: cst.CSTNode, state: State) -> State | None:
        if isinstance(node, cst.SimpleStatementLine):
            return self._simple(node, state)
        if node not in self._tree.left_early and not self._made_in(node):
            self._check([node], state)  # for all that is in it
            return state
        if isinstance(node, cst.If):
            return self._if(node, state)
        if isinstance(node, (cst.For, cst.While)):
            return self._loop(node, state)
        if isinstance(node, (cst.Try, cst.TryStar)):
            return self._try(node, state)
        if isinstance(node, cst.With):
            self._check(node.items, state)
            return self._block(node.body.body, self._bind_within(node.items, state))
        if isinstance(node, cst.Match):
            self._check([node.subject], state)
            state |= frozenset(binding for binding in self._bindings if binding.node is node)
            ends = [self._block(case.body.body, state) for case in node.cases]
            return _union([state, *ends])
        self._check([node], state)
        return self._bind_within([node], state, deep=False)

    def _simple(self, node: cst.SimpleStatementLine, state: State) -> State | None:
        for small in node.body:
            self._check([small], state)
            state = self._bind_within([small], state)
            if isinstance(small, _LEAVES):
                return None
        return state

    def _if(self, node: cst.If, state: State) -> State | None:
        self._check([node.test], state)
        state = self._bind_within([node.test], state)
        then = self._block(node.body.body, state)
        if node.orelse is None:
            return _union([then, state])
        if isinstance(node.orelse, cst.If):
            return _union([then, self._if(node.orelse, state)])
        return _union([then, self._block(node.orelse.body.body, state)])

    def _loop(self, node: cst.For | cst.While, state: State) -> State | None:
        header = [node.target, node.iter] if isinstance(node, cst.For) else [node.test]
        self._check(header[-1:], state)
        # A binding late in the body reaches the top of the next turn.
        again = frozenset(self._made_in(node))
        turn = state | again
        self._check(header, turn)
        # The target is bound anew in each turn: nothing of the last one is left in it.
        target = frozenset(binding for binding in again if binding.node is node)
        end = self._block(node.body.body, target or turn)
        if node.body in self._tree.interrupted:
            end = _union([turn, end])
        after = _union([state, end]) or state
        return self._block(node.orelse.body.body, after) if node.orelse is not None else after

    def _try(self, node: cst.Try | cst.TryStar, state: State) -> State | None:
        body = self._block(node.body.body, state)
        inside = frozenset(self._made_in(node.body))
        ends = [self._block(handler.body.body, state | inside) for handler in node.handlers]
        if node.orelse is not None and body is not None:
            body = self._block(node.orelse.body.body, body)
        after = _union([body, *ends])
        if node.finalbody is not None:
            return self._block(node.finalbody.body.body, after)
        return after

    def _check(self, nodes: Iterable[cst.CSTNode], state: State) -> None:
        for node in nodes:
            self._states.setdefault(node, state)

    def _bind_within(self, nodes: Sequence[cst.CSTNode], state: State, deep: bool = True) -> State:
        """The state after the bindings made by these nodes: the last one wins."""
        made = [each for node in nodes for each in self._made_in(node, deep)]
        return frozenset(made[-1:]) or state

    def _made_in(self, node: cst.CSTNode, deep: bool = True) -> Sequence[Binding]:
        """The bindings that a node, and what is in it, makes; in the order of the text."""
        first, last = self._tree.reach(node)
        return self._bindings[bisect_left(self._order, first) : bisect_right(self._order, last if deep else first)]


def _union(states: Iterable[State | None]) -> State | None:
    live = [state for state in states if state is not None]
    return frozenset().union(*live) if live else None


def _body(node: cst.CSTNode) -> Sequence[cst.CSTNode] | None:
    if isinstance(node, cst.Module):
        return node.body
    if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        return node.body.body
    return None
