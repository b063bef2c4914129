"""What a call gives of what it is given, read at the call: `ensure_tuple(nets)` as `tuple(nets)`, or `(nets,)`.

Calls are followed without regard to their context, so a function that everything passes through would give every
caller what each of them passed. Where a function returns no more than its parameters, or a tuple or list of them, its
results are written with the call's own arguments, as nodes that stand for the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import libcst as cst

from .calls import argument_for, parameters
from .definitions import class_of, is_static, returns
from .scopes import Binds
from .symbols import Defined
from .tree import Tree

if TYPE_CHECKING:
    from .callers import Function
    from .values import Values

Returned = tuple[Tree, cst.BaseExpression]

_DISPLAYS = (cst.Tuple, cst.List, cst.Set)
_BUILTINS = frozenset({"list", "next", "iter", "reversed", "set", "sorted", "tuple"})
"""Builtins that give what is in their only argument."""
_METHODS = frozenset({"copy", "items", "keys", "values"})
_CONSTANTS = (cst.SimpleString, cst.Integer, cst.Float)
_WORDS = frozenset({"None", "True", "False"})


class GivenBack:
    """Answers for one program."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._known: dict[tuple[Function, cst.Call | None], Sequence[Returned]] = {}

    def results(self, tree: Tree, call: cst.Call | None, where: Tree, function: Function) -> Sequence[Returned]:
        """What a function returns to one call that runs it, or to any (None)."""
        key = function, call
        if key not in self._known:
            self._known[key] = self._find(tree, call, where, function)
        return self._known[key]

    def _find(self, tree: Tree, call: cst.Call | None, where: Tree, function: Function) -> Sequence[Returned]:
        values = returns(where, function) if isinstance(function, cst.FunctionDef) else [function.body]
        plain = [(where, value) for value in values]
        if call is None:
            return plain
        if isinstance(function, cst.FunctionDef) and not is_static(function):
            if function.decorators or class_of(where, function) is not None:
                return plain
        names = parameters(function, bound=False)
        given = {name: value for name in names if (value := argument_for(call.args, names, name)) is not None}
        writer, found = _Writer(self._values, tree, call, where, function, given), list[Returned]()
        for value in values:
            inside = where.inside(value)
            if not any(isinstance(node, cst.Name) and node.value in names for node in inside):
                found.append((where, value))
                continue
            written = writer.written(value)
            if written is None:
                return plain
            found.append((tree, written))
        return found


class _Writer:
    """The expressions of one function, written with the arguments of one call."""

    def __init__(
        self,
        values: Values,
        tree: Tree,
        call: cst.Call,
        where: Tree,
        function: Function,
        given: Mapping[str, cst.BaseExpression],
    ) -> None:
        self._values, self._tree, self._call = values, tree, call
        self._where, self._function, self._given = where, function, given

    def written(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """None where something else than the arguments comes into it."""
        if isinstance(node, cst.Name):
            return self._stand_in(cst.Name(node.value)) if node.value in _WORDS else self._argument(node)
        if isinstance(node, _CONSTANTS):
            return self._stand_in(node.deep_clone())
        if isinstance(node, _DISPLAYS):
            elements = [self._element(element) for element in node.elements]
            known = [element for element in elements if element is not None]
            return self._stand_in(node.with_changes(elements=known)) if len(known) == len(elements) else None
        if isinstance(node, (cst.IfExp, cst.BooleanOperation)):
            return self._one_of(node)
        return self._called(node) if isinstance(node, cst.Call) else None

    def _one_of(self, node: cst.IfExp | cst.BooleanOperation) -> cst.BaseExpression | None:
        """`x if test else [x]`, `x or []`: of the first, the test is left as it stands."""
        sides = (node.body, node.orelse) if isinstance(node, cst.IfExp) else (node.left, node.right)
        one, other = map(self.written, sides)
        if one is None or other is None:
            return None
        if isinstance(node, cst.IfExp):
            return self._stand_in(node.with_changes(body=one, orelse=other))
        return self._stand_in(node.with_changes(left=one, right=other))

    def _element(self, element: cst.BaseElement) -> cst.BaseElement | None:
        value = self.written(element.value)
        return element.with_changes(value=value) if value is not None else None

    def _called(self, node: cst.Call) -> cst.BaseExpression | None:
        """`tuple(x)`, `x.values()`."""
        if isinstance(node.func, cst.Attribute) and node.func.attr.value in _METHODS and not node.args:
            owner = self.written(node.func.value)
            return (
                None
                if owner is None
                else self._stand_in(cst.Call(self._stand_in(cst.Attribute(owner, node.func.attr))))
            )
        is_builtin = isinstance(node.func, cst.Name) and node.func.value in _BUILTINS
        if not is_builtin or len(node.args) != 1 or node.args[0].star or node.args[0].keyword is not None:
            return None
        assert isinstance(node.func, cst.Name)
        symbols, name = self._values.program.symbols, self._stand_in(cst.Name(node.func.value))
        value = self.written(node.args[0].value)
        if value is None or symbols.of(self._where, node.func) is not None or symbols.of(self._tree, name) is not None:
            return None
        return self._stand_in(cst.Call(name, [cst.Arg(value)]))

    def _argument(self, name: cst.Name) -> cst.BaseExpression | None:
        if name.value not in self._given:
            return None
        symbol = self._values.program.symbols.of(self._where, name)
        if not isinstance(symbol, Defined) or symbol.scope.node is not self._function:
            return None
        bindings = self._values.bindings(self._where, name, symbol)
        is_parameter = all(binding.how is Binds.PARAMETER for binding in bindings)
        return self._given[name.value] if is_parameter else None

    def _stand_in(self, node: cst.BaseExpression) -> cst.BaseExpression:
        self._tree.add_for(self._call, node)
        return node
