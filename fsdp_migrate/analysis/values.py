"""Where a value is made: from an expression back to the calls, literals and names that it can come from.

The answer is a set of origins. One origin: the value is known. Several: one of these. An origin without a node:
only run time knows, and `reason` says why.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import libcst as cst

from codemods.tables.names import WRAPPER, fsdp1_name

from .calls import argument_for, parameters
from .containers import Containers, Place, constant
from .definitions import attribute_values, class_of, first_parameter, is_property, last_name, overrides, returns
from .flow import comprehension, reaching
from .program import Program
from .scopes import Binding, Binds
from .symbols import Defined, Outside, OwnModule
from .tree import Tree

_SAME_MODULE = frozenset(
    {"to", "cuda", "cpu", "train", "eval", "float", "half", "bfloat16", "double", "requires_grad_"}
)
"""`nn.Module` methods that return the module they are called on."""


_MAPPING = frozenset({"items", "keys", "pop", "update", "values"})
"""Methods of a `ModuleDict`, whose items are attributes as well."""

MAX_STEPS = 200
"""Over how many steps a value is followed. In seven large repositories, the longest way that led anywhere took 42."""

MAX_EXPRESSIONS = 5000
"""How many expressions one question looks at: ways that part and meet again would be followed without end."""

_TOO_MANY = "too many ways lead to its value"


@dataclass(frozen=True)
class Origin:
    """One place where a value is made: `node` in `tree`; no node when only run time knows."""

    tree: Tree
    node: cst.CSTNode | None
    reason: str = ""
    read: cst.Attribute | None = None
    """The attribute that only run time sets, where that is the reason."""


class Values:
    """Answers `origins` for any expression of the program. Follows calls without regard to their context."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._memo: dict[cst.CSTNode, tuple[Origin, ...]] = {}
        self._partial: dict[cst.CSTNode, tuple[Origin, ...]] = {}
        self._callers: dict[cst.FunctionDef, list[tuple[Tree, cst.Call, bool]]] = {}
        self._called: dict[Tree, dict[str | None, list[tuple[cst.Call, cst.BaseExpression]]]] = {}
        self._reaching: dict[cst.CSTNode, tuple[Binding, ...]] = {}
        self._bases: dict[cst.ClassDef, list[tuple[Tree, cst.ClassDef]]] = {}
        self._families: dict[cst.ClassDef, list[tuple[Tree, cst.ClassDef]]] = {}
        self._sole: dict[str, list[tuple[Tree, cst.FunctionDef]]] = {}
        self._active: set[cst.CSTNode] = set()
        self._cut = 0
        self._steps = 0
        self._containers = Containers(program, self._made)

    def origins(self, tree: Tree, expression: cst.BaseExpression) -> tuple[Origin, ...]:
        """Where the value of `expression` can be made. Empty when it only depends on itself (a cycle)."""
        self._steps = self._steps + 1 if self._active else 0
        if self._steps > MAX_EXPRESSIONS:
            self._cut += 1
            return (Origin(tree, None, _TOO_MANY),)
        if expression in self._memo:
            return self._memo[expression]
        if expression in self._partial:
            return self._partial[expression]
        if expression in self._active:
            self._cut += 1
            return ()
        if len(self._active) >= MAX_STEPS:
            self._cut += 1
            return (Origin(tree, None, "its value is made too many steps away"),)
        cut_before = self._cut
        self._active.add(expression)
        try:
            found = tuple(dict.fromkeys(self._origins(tree, expression)))
        finally:
            self._active.discard(expression)
        if self._cut == cut_before or not self._active:
            self._memo[expression] = found
        else:
            # Inside a cycle this is part of the truth; the rest is found by the question that is being answered.
            self._partial[expression] = found
        if not self._active:
            if self._steps > MAX_EXPRESSIONS:
                # Asked one by one, each of these would lead as far again.
                lost = Origin(tree, None, _TOO_MANY)
                self._memo.update((part, (*others, lost)) for part, others in self._partial.items())
            self._partial.clear()
        return found

    def functions(self, tree: Tree, callee: cst.BaseExpression) -> list[tuple[Tree, cst.FunctionDef]]:
        """The functions of the program that calling this expression can run; a class stands for its `__init__`."""
        found = []
        for origin in self.origins(tree, callee):
            node = origin.node
            if isinstance(node, cst.Call) and self.is_partial(origin.tree, node):
                found.extend(self.functions(origin.tree, node.args[0].value))
            elif isinstance(node, cst.FunctionDef):
                found.append((origin.tree, node))
        return found

    def is_partial(self, tree: Tree, call: cst.Call) -> bool:
        if not call.args or last_name(call.func) != "partial":
            return False
        return self.program.symbols.dotted(tree, call.func) == "functools.partial"

    def _origins(self, tree: Tree, expression: cst.BaseExpression) -> Iterator[Origin]:
        if isinstance(expression, cst.Name):
            yield from self._of_name(tree, expression)
        elif isinstance(expression, cst.Attribute):
            yield from self._of_attribute(tree, expression)
        elif isinstance(expression, cst.Call):
            yield from self._of_call(tree, expression)
        elif isinstance(expression, cst.IfExp):
            yield from self.origins(tree, expression.body)
            yield from self.origins(tree, expression.orelse)
        elif isinstance(expression, cst.BooleanOperation):
            yield from self.origins(tree, expression.left)
            yield from self.origins(tree, expression.right)
        elif isinstance(expression, cst.NamedExpr):
            yield from self.origins(tree, expression.value)
        elif isinstance(expression, cst.Subscript):
            yield from self._of_subscript(tree, expression)
        else:
            yield Origin(tree, expression)

    def _of_name(self, tree: Tree, name: cst.Name) -> Iterator[Origin]:
        own = comprehension(tree, name)
        if own is not None:
            yield from self._of_binding(tree, own)
            return
        symbol = self.program.symbols.of(tree, name)
        if symbol is None or isinstance(symbol, Outside):
            yield Origin(tree, name)
        elif isinstance(symbol, Defined):
            bindings = self._bindings(tree, name, symbol)
            for binding in bindings:
                yield from self._of_binding(symbol.tree, binding)
        else:
            yield Origin(tree, None, f"`{name.value}` is a module")

    def _bindings(self, tree: Tree, use: cst.CSTNode, symbol: Defined) -> Iterable[Binding]:
        if symbol.tree is tree and tree.scope_of[use].lookup(symbol.name) is symbol.scope:
            if use not in self._reaching:
                self._reaching[use] = reaching(tree, use, symbol.name)
            return self._reaching[use]
        return symbol.scope.bindings[symbol.name]

    def _of_binding(self, tree: Tree, binding: Binding) -> Iterator[Origin]:
        if binding.how is Binds.VALUE and binding.value is not None:
            yield from self.origins(tree, binding.value)
        elif binding.how is Binds.ITEM and binding.value is not None:
            yield from self._item(tree, binding.value, binding.index)
        elif binding.how is Binds.TURN and binding.value is not None:
            yield from self._turn(tree, binding.name, binding.value, binding.index)
        elif binding.how is Binds.DEFINITION:
            yield Origin(tree, binding.node)
        elif binding.how is Binds.PARAMETER:
            yield from self._of_parameter(tree, cst.ensure_type(binding.node, cst.Param))
        else:
            yield Origin(tree, None, f"`{binding.name}` is set in a way that is not followed")

    def _item(self, tree: Tree, value: cst.BaseExpression, index: int) -> Iterator[Origin]:
        """Element `index` of a tuple: `a, b = f()` with `return x, y` in `f`."""
        for origin in self.origins(tree, value):
            if isinstance(origin.node, (cst.Tuple, cst.List)) and index < len(origin.node.elements):
                yield from self.origins(origin.tree, origin.node.elements[index].value)
            else:
                yield Origin(tree, None, "an element of a value that is made elsewhere")

    def _of_subscript(self, tree: Tree, expression: cst.Subscript) -> Iterator[Origin]:
        """`models["actor"]`: what is put there, and the subscript itself, since more can be put there unseen."""
        index = expression.slice[0].slice if len(expression.slice) == 1 else None
        if isinstance(index, cst.Index):
            for where, value in self._containers.contents(tree, expression.value, constant(index.value)):
                yield from self.origins(where, value)
        yield Origin(tree, expression)

    def _turn(self, tree: Tree, name: str, iterable: cst.BaseExpression, index: int) -> Iterator[Origin]:
        """The variable of a loop or comprehension: what is put into the iterable, and more that is not seen."""
        for where, value in self._containers.turns(tree, iterable, index):
            yield from self.origins(where, value)
        yield Origin(tree, None, f"`{name}` is set in a way that is not followed")

    def _made(self, tree: Tree, expression: cst.BaseExpression) -> list[Place]:
        """The expressions that make a value."""
        found = self.origins(tree, expression)
        return [(o.tree, o.node) for o in found if isinstance(o.node, cst.BaseExpression)]

    def _of_call(self, tree: Tree, call: cst.Call) -> Iterator[Origin]:
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in _SAME_MODULE:
            yield from self.origins(tree, call.func.value)
            return
        if self.program.symbols.dotted(tree, call.func) == "torch.compile" and call.args:
            yield from self.origins(tree, call.args[0].value)
            return
        functions = self.functions(tree, call.func)
        lambdas = [origin for origin in self.origins(tree, call.func) if isinstance(origin.node, cst.Lambda)]
        if not functions and not lambdas:
            yield Origin(tree, call)
        for origin in lambdas:
            yield from self.origins(origin.tree, cst.ensure_type(origin.node, cst.Lambda).body)
        for where, function in functions:
            for returned in returns(where, function):
                yield from self.origins(where, returned)

    def _of_parameter(self, tree: Tree, parameter: cst.Param) -> Iterator[Origin]:
        function = tree.scope_of[parameter].node
        if not isinstance(function, cst.FunctionDef):
            yield Origin(tree, None, f"`{parameter.name.value}` is a parameter")
            return
        passed = list(self.passed(tree, function, parameter))
        if not passed:
            yield Origin(tree, None, f"`{parameter.name.value}` is a parameter of `{function.name.value}`")
        for where, value in passed:
            if value is None:
                yield Origin(tree, None, f"`{parameter.name.value}` is passed in a way that is not followed")
            else:
                yield from self.origins(where, value)

    def passed(
        self, tree: Tree, function: cst.FunctionDef, parameter: cst.Param
    ) -> Iterator[tuple[Tree, cst.BaseExpression | None]]:
        """What the program's calls pass for a parameter, its default where they leave it out; None when unclear."""
        for where, call, bound in self.callers(tree, function):
            value = argument_for(call, parameters(function, bound), parameter.name.value)
            if value is not None:
                yield where, value
            elif any(argument.star for argument in call.args) or self.is_partial(where, call):
                yield where, None
            else:
                yield tree, parameter.default

    def callers(self, tree: Tree, function: cst.FunctionDef) -> list[tuple[Tree, cst.Call, bool]]:
        """The program's calls of a function, and whether the first parameter is bound already (a method)."""
        if function not in self._callers:
            cut_before = self._cut
            found = list(self._find_callers(tree, function))
            if self._cut != cut_before:
                return found
            self._callers[function] = found
        return self._callers[function]

    def _find_callers(self, tree: Tree, function: cst.FunctionDef) -> Iterator[tuple[Tree, cst.Call, bool]]:
        owner = class_of(tree, function)
        names = {function.name.value}
        if owner is not None and function.name.value == "__init__":
            names = {owner.name.value, "__init__"}
        # Nobody knows what `super()` is: such a call leads somewhere only where one method alone has the name.
        through_super = any(self._only_method(name) for name in names)
        for where in self.program.calling(names, through_super):
            for call, target in self._calls(where, names):
                if any(found is function for _, found in self._targets(where, target)):
                    yield where, call, owner is not None

    def _calls(self, tree: Tree, names: Iterable[str]) -> list[tuple[cst.Call, cst.BaseExpression]]:
        """The calls in a file of something with one of these names, or of a `partial` of it, and that something."""
        if tree not in self._called:
            called = self._called[tree] = defaultdict(list)
            for call in tree.nodes(cst.Call):
                target = call.args[0].value if self.is_partial(tree, call) else call.func
                called[last_name(target)].append((call, target))
        found = [pair for name in names for pair in self._called[tree].get(name, ())]
        return sorted(found, key=lambda pair: tree.order[pair[0]])

    def _targets(self, tree: Tree, callee: cst.BaseExpression) -> list[tuple[Tree, cst.FunctionDef]]:
        found = self.functions(tree, callee)
        for origin in () if found else self.origins(tree, callee):
            if isinstance(origin.node, cst.ClassDef):
                found.extend(self._methods(origin.tree, origin.node, "__init__"))
        if not found and isinstance(callee, cst.Attribute):
            # The receiver is not known: a method name that only one class of the program defines is enough.
            found = self._only_method(callee.attr.value)
        return found

    def _of_attribute(self, tree: Tree, expression: cst.Attribute) -> Iterator[Origin]:
        symbol = self.program.symbols.of(tree, expression)
        if isinstance(symbol, Outside):
            yield Origin(tree, expression)
            return
        if isinstance(symbol, Defined):
            for binding in symbol.scope.bindings[symbol.name]:
                yield from self._of_binding(symbol.tree, binding)
            return
        if isinstance(symbol, OwnModule):
            yield Origin(tree, None, "a module")
            return
        name = expression.attr.value
        if name in {"module", "_orig_mod"} and any(
            self._is_wrapper(origin) for origin in self.origins(tree, expression.value)
        ):
            yield from self.origins(tree, expression.value)
            return
        found = False
        method = next((n for n in tree.ancestors(expression) if isinstance(n, cst.FunctionDef)), None)
        for where, owner in self._classes_of(tree, expression.value):
            for origin in self._member(where, owner, name, method):
                found = True
                yield origin
        if not found and name not in _MAPPING and self._containers.is_module_dict(tree, expression.value):
            for where, value in self._containers.contents(tree, expression.value, name):
                yield from self.origins(where, value)
        if not found:
            yield Origin(tree, None, f"`{tree.code(expression)}` is an attribute that run time sets", expression)

    def _is_wrapper(self, origin: Origin) -> bool:
        if not isinstance(origin.node, cst.Call):
            return False
        return fsdp1_name(self.program.symbols.dotted(origin.tree, origin.node.func) or "") == WRAPPER

    def _member(self, tree: Tree, owner: cst.ClassDef, name: str, method: cst.FunctionDef | None) -> Iterator[Origin]:
        for where, found in self._methods(tree, owner, name):
            if not is_property(found):
                yield Origin(where, found)
            for returned in returns(where, found) if is_property(found) else ():
                yield from self.origins(where, returned)
        for where, relative in self.family(tree, owner):
            if relative is not owner and method is not None and overrides(relative, owner, method):
                continue
            for value in attribute_values(where, relative, name):
                yield from self.origins(where, value)

    def _classes_of(self, tree: Tree, receiver: cst.BaseExpression) -> list[tuple[Tree, cst.ClassDef]]:
        """The classes of the program that the receiver of an attribute can be an object of."""
        if isinstance(receiver, cst.Name):
            method = next((n for n in tree.ancestors(receiver) if isinstance(n, cst.FunctionDef)), None)
            owner = class_of(tree, method) if method is not None else None
            if owner is not None and method is not None and receiver.value == first_parameter(method):
                return [(tree, owner)]
        found = []
        for origin in self.origins(tree, receiver):
            if isinstance(origin.node, cst.Call):
                for made in self.origins(origin.tree, origin.node.func):
                    if isinstance(made.node, cst.ClassDef):
                        found.append((made.tree, made.node))
        return found

    def family(self, tree: Tree, owner: cst.ClassDef) -> list[tuple[Tree, cst.ClassDef]]:
        """A class, the program's classes it inherits from, and those that inherit from it."""
        if owner in self._families:
            return self._families[owner]
        cut_before = self._cut
        found = [(tree, owner), *self.bases(tree, owner)]
        names = [owner.name.value]
        for name in names:  # grows: who inherits from an heir may never name the owner
            for where in self.program.inheriting(name):
                for other in where.nodes(cst.ClassDef):
                    if (where, other) not in found and any(base is owner for _, base in self.bases(where, other)):
                        found.append((where, other))
                        names.append(other.name.value)
        if self._cut == cut_before:
            self._families[owner] = found
        return found

    def bases(self, tree: Tree, owner: cst.ClassDef) -> list[tuple[Tree, cst.ClassDef]]:
        """The program's classes that a class inherits from, nearest first."""
        if owner in self._bases:
            return self._bases[owner]
        if owner in self._active:
            self._cut += 1
            return []
        cut_before = self._cut
        self._active.add(owner)
        try:
            found = list(self._find_bases(tree, owner))
        finally:
            self._active.discard(owner)
        if self._cut == cut_before:
            self._bases[owner] = found
        return found

    def _find_bases(self, tree: Tree, owner: cst.ClassDef) -> Iterator[tuple[Tree, cst.ClassDef]]:
        for argument in owner.bases:
            for origin in self.origins(tree, argument.value):
                if isinstance(origin.node, cst.ClassDef):
                    yield origin.tree, origin.node
                    yield from self.bases(origin.tree, origin.node)

    def _methods(self, tree: Tree, owner: cst.ClassDef, name: str) -> list[tuple[Tree, cst.FunctionDef]]:
        for where, klass in [(tree, owner), *self.bases(tree, owner)]:
            for node in klass.body.body:
                if isinstance(node, cst.FunctionDef) and node.name.value == name:
                    return [(where, node)]
        return []

    def _only_method(self, name: str) -> list[tuple[Tree, cst.FunctionDef]]:
        """The method of this name, when the program has no second one."""
        if name not in self._sole:
            found = list(islice(self._methods_named(name), 2))
            self._sole[name] = found if len(found) == 1 else []
        return self._sole[name]

    def _methods_named(self, name: str) -> Iterator[tuple[Tree, cst.FunctionDef]]:
        for where in self.program.defining(name):
            for function in where.nodes(cst.FunctionDef):
                if function.name.value == name and class_of(where, function) is not None:
                    yield where, function
