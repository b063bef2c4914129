"""Where a value is made: from an expression back to the calls, literals and names that it can come from.

The answer is a set of origins. One origin: the value is known. Several: one of these. An origin without a node:
only run time knows, and `reason` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import libcst as cst

from .annotations import annotated_classes
from .callers import Callers, Function
from .containers import Containers, Part, constant
from .definitions import is_context_manager, is_generator, is_super, last_name, returns, yields
from .flow import comprehension, reaching
from .objects import Objects
from .program import Program
from .scopes import EACH, REST, Binding, Binds, Path
from .stores import table_owner
from .symbols import Defined, Outside, OwnModule
from .tree import Tree

_SAME_MODULE = frozenset(
    {"to", "cuda", "cpu", "train", "eval", "float", "half", "bfloat16", "double", "requires_grad_"}
)
"""`nn.Module` methods that return the module they are called on."""
_MAPPING = frozenset({"items", "keys", "pop", "update", "values"})
"""Methods of a `ModuleDict`, whose items are attributes as well."""
_TAKES_OUT = frozenset({"get", "pop", "popleft", "setdefault"})
"""Methods of containers that give one of the items."""

_CONTAINERS = (cst.BaseList, cst.BaseDict, cst.BaseSet, cst.Tuple, cst.BinaryOperation)

MAX_STEPS = 200
"""Over how many steps a value is followed. In seven large repositories, the longest way that led anywhere took 42."""

MAX_EXPRESSIONS = 5000
"""How many expressions one question looks at: ways that part and meet again would be followed without end."""

_TOO_MANY = "too many ways lead to its value"


class Origin(NamedTuple):
    """One place where a value is made: `node` in `tree`; no node when only run time knows."""

    tree: Tree
    node: cst.CSTNode | None
    reason: str = ""
    read: cst.Attribute | None = None
    """The attribute that only run time sets, where that is the reason."""


class Values:
    """Answers `origins` for any expression of the program. Follows calls without regard to their context."""

    def __init__(self, program: Program, is_model: Callable[[Origin], bool]) -> None:
        """`is_model` tells what matters even where it is only possible that it comes to a place."""
        self.program = program
        self.is_model = is_model
        self.callers = Callers(self)
        self.objects = Objects(self)
        self.containers = Containers(self)
        self._memo: dict[tuple[cst.CSTNode, Path], tuple[Origin, ...]] = {}
        self._partial: dict[tuple[cst.CSTNode, Path], tuple[Origin, ...]] = {}
        self._reaching: dict[cst.CSTNode, tuple[Binding, ...]] = {}
        self._active: set[tuple[cst.CSTNode, Path]] = set()
        self._cut = 0
        self._steps = 0

    def origins(self, tree: Tree, expression: cst.BaseExpression, path: Path = ()) -> tuple[Origin, ...]:
        """Where the value of `expression`, or a part of it, can be made. Empty when it only depends on itself."""
        self._steps = self._steps + 1 if self._active else 0
        if self._steps > MAX_EXPRESSIONS:
            self._cut += 1
            return (Origin(tree, None, _TOO_MANY),)
        key = (expression, path)
        if key in self._memo:
            return self._memo[key]
        if key in self._partial:
            return self._partial[key]
        if key in self._active:
            self._cut += 1
            return ()
        if len(self._active) >= MAX_STEPS:
            self._cut += 1
            return (Origin(tree, None, "its value is made too many steps away"),)
        cut_before = self._cut
        self._active.add(key)
        try:
            ways = self._part(tree, expression, path) if path else self._origins(tree, expression)
            found = tuple(dict.fromkeys(ways))
        finally:
            self._active.discard(key)
        if self._cut == cut_before or not self._active:
            self._memo[key] = found
        else:
            # Inside a cycle this is part of the truth; the rest is found by the question that is being answered.
            self._partial[key] = found
        if not self._active:
            if self._steps > MAX_EXPRESSIONS:
                # Asked one by one, each of these would lead as far again.
                lost = Origin(tree, None, _TOO_MANY)
                self._memo.update((part, (*others, lost)) for part, others in self._partial.items())
            self._partial.clear()
        return found

    def of_part(self, part: Part) -> tuple[Origin, ...]:
        return self.origins(part.tree, part.node, part.path)

    def made(self, tree: Tree, node: cst.CSTNode) -> Origin:
        return Origin(tree, node)

    @contextmanager
    def whole(self) -> Iterator[Callable[[], bool]]:
        """Whether what is found inside of the context is the whole truth, and not cut by a cycle."""
        cut_before = self._cut
        yield lambda: self._cut == cut_before

    @contextmanager
    def once(self, node: cst.CSTNode) -> Iterator[bool]:
        """Whether this question is not being answered already."""
        key = (node, ())
        if key in self._active:
            self._cut += 1
            yield False
            return
        self._active.add(key)
        try:
            yield True
        finally:
            self._active.discard(key)

    def functions(self, tree: Tree, callee: cst.BaseExpression) -> list[tuple[Tree, cst.FunctionDef]]:
        """The functions of the program that calling this expression can run; a class stands for its `__init__`."""
        found = []
        for origin in self.origins(tree, callee):
            node = origin.node
            if isinstance(node, cst.Call) and self.is_partial(origin.tree, node):
                found.extend(self.functions(origin.tree, node.args[0].value))
            elif isinstance(node, cst.Call):
                found.extend(self.objects.methods_of(origin.tree, node, "__call__"))
            elif isinstance(node, cst.FunctionDef):
                found.append((origin.tree, node))
        return found

    def results(self, tree: Tree, callee: cst.BaseExpression) -> Iterator[tuple[Tree, cst.BaseExpression]]:
        """What calling this expression returns."""
        for origin in self.origins(tree, callee):
            if isinstance(origin.node, cst.Lambda):
                yield origin.tree, origin.node.body
        for where, function in self.functions(tree, callee):
            for returned in returns(where, function):
                yield where, returned

    def is_partial(self, tree: Tree, call: cst.Call) -> bool:
        if not call.args or last_name(call.func) != "partial":
            return False
        return self.program.symbols.dotted(tree, call.func) == "functools.partial"

    def _part(self, tree: Tree, expression: cst.BaseExpression, path: Path) -> Iterator[Origin]:
        """A part of the value: what is put there, and more that is not seen, but for the elements of a tuple."""
        step, rest = path[0], path[1:]
        if step is REST:
            yield from (origin for origin in self.origins(tree, expression) if isinstance(origin.node, _CONTAINERS))
            yield Origin(tree, None, f"the rest of `{tree.code(expression)}`")
            return
        if step is EACH:
            for part in self.containers.turns(tree, expression, rest):
                yield from self.of_part(part)
            yield Origin(tree, None, f"what `{tree.code(expression)}` gives is not followed")
            return
        is_written_out = True
        for origin in self.origins(tree, expression):
            element = _element(origin.node, step)
            if element is not None:
                yield from self.origins(origin.tree, element, rest)
            else:
                is_written_out = False
                yield Origin(tree, None, "an element of a value that is made elsewhere")
        if not is_written_out:
            for part in self.containers.items(tree, expression, step, rest):
                yield from self.of_part(part)

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

    def bound(self, tree: Tree, name: cst.Name) -> list[tuple[Tree, cst.BaseExpression]] | None:
        """The expressions that a name is bound to where it stands; None where it may be bound in another way."""
        symbol = self.program.symbols.of(tree, name)
        if not isinstance(symbol, Defined) or comprehension(tree, name) is not None:
            return None
        found: list[tuple[Tree, cst.BaseExpression]] = []
        for binding in self._bindings(tree, name, symbol):
            if binding.how is not Binds.VALUE or binding.value is None or binding.path:
                return None
            found.append((symbol.tree, binding.value))
        return found or None

    def _bindings(self, tree: Tree, use: cst.CSTNode, symbol: Defined) -> Iterable[Binding]:
        if symbol.tree is tree and tree.scope_of[use].lookup(symbol.name) is symbol.scope:
            if use not in self._reaching:
                self._reaching[use] = reaching(tree, use, symbol.name)
            return self._reaching[use]
        return symbol.scope.bindings[symbol.name]

    def _of_binding(self, tree: Tree, binding: Binding) -> Iterator[Origin]:
        if binding.how is Binds.VALUE and binding.value is not None:
            yield from self.origins(tree, binding.value, binding.path)
        elif binding.how is Binds.ENTERED and binding.value is not None:
            yield from self._entered(tree, binding.value)
        elif binding.how is Binds.DEFINITION:
            yield Origin(tree, binding.node)
        elif binding.how is Binds.PARAMETER:
            yield from self._of_parameter(tree, cst.ensure_type(binding.node, cst.Param))
        else:
            if isinstance(binding.node, cst.AugAssign) and isinstance(binding.node.target, cst.Name):
                before = self.origins(tree, binding.node.target)
                yield from (origin for origin in before if isinstance(origin.node, _CONTAINERS))
            yield Origin(tree, None, f"`{binding.name}` is set in a way that is not followed")

    def _entered(self, tree: Tree, manager: cst.BaseExpression) -> Iterator[Origin]:
        """`with manager as x`."""
        for origin in self.origins(tree, manager):
            found = False
            call = origin.node if isinstance(origin.node, cst.Call) else None
            for where, function in self.functions(origin.tree, call.func) if call is not None else ():
                for value in yields(where, function) if is_context_manager(function) else ():
                    found = True
                    yield from self.origins(where, value)
            for where, function in self.objects.methods_of(origin.tree, call, "__enter__") if call is not None else ():
                for value in returns(where, function):
                    found = True
                    yield from self.origins(where, value)
            if not found:
                yield Origin(tree, None, "a context manager gives it")

    def _of_subscript(self, tree: Tree, expression: cst.Subscript) -> Iterator[Origin]:
        """`models["actor"]`: what is put there, and the subscript itself, since more can be put there unseen."""
        index = expression.slice[0].slice if len(expression.slice) == 1 else None
        if isinstance(index, cst.Index):
            key = constant(index.value)
            owner = table_owner(expression.value)
            if owner is not None and isinstance(key, str):
                yield from self._read(tree, owner, key, expression)
                return
            for part in self.containers.items(tree, expression.value, key):
                yield from self.of_part(part)
            for origin in self.origins(tree, expression.value):
                made = self.objects.methods_of(origin.tree, origin.node, "__getitem__") if origin.node else ()
                for where, method in made:
                    for returned in returns(where, method):
                        yield from self.origins(where, returned)
        yield Origin(tree, expression)

    def _of_call(self, tree: Tree, call: cst.Call) -> Iterator[Origin]:
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in _SAME_MODULE:
            yield from self.origins(tree, call.func.value)
            return
        library = self.program.symbols.dotted(tree, call.func)
        if library == "torch.compile" and call.args:
            yield from self.origins(tree, call.args[0].value)
            return
        if library == "copy.copy" and call.args:
            yield from self.origins(tree, call.args[0].value)
            return
        functions = self.functions(tree, call.func)
        lambdas = [origin for origin in self.origins(tree, call.func) if isinstance(origin.node, cst.Lambda)]
        if not functions and not lambdas:
            yield from self._of_unseen_call(tree, call)
        for origin in lambdas:
            yield from self.origins(origin.tree, cst.ensure_type(origin.node, cst.Lambda).body)
        for where, function in functions:
            if is_generator(where, function):
                yield Origin(tree, call)
            for returned in returns(where, function):
                yield from self.origins(where, returned)

    def _of_unseen_call(self, tree: Tree, call: cst.Call) -> Iterator[Origin]:
        """A call of what is not the program's: of a container's method, of a builtin, or of anything."""
        values = [argument.value for argument in call.args]
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in _TAKES_OUT:
            key = constant(values[0]) if values else None
            for part in self.containers.items(tree, call.func.value, key):
                yield from self.of_part(part)
        elif isinstance(call.func, cst.Name) and call.func.value == "next" and values:
            for part in self.containers.turns(tree, values[0]):
                yield from self.of_part(part)
        elif isinstance(call.func, cst.Name) and call.func.value == "getattr" and len(values) > 1:
            name = constant(values[1])
            if isinstance(name, str):
                yield from (origin for origin in self._read(tree, values[0], name, call) if origin.node is not None)
        yield Origin(tree, call)

    def _of_parameter(self, tree: Tree, parameter: cst.Param) -> Iterator[Origin]:
        function = tree.scope_of[parameter].node
        if not isinstance(function, Function):
            yield Origin(tree, None, f"`{parameter.name.value}` is a parameter")
            return
        if parameter in (function.params.star_arg, function.params.star_kwarg):
            yield Origin(tree, parameter, f"`{parameter.name.value}` takes what no other parameter does")
            return
        passed = list(self.callers.passed(tree, function, parameter))
        library, classes = self.program.library, annotated_classes(self.program.symbols, tree, parameter)
        models = [name for name in classes if library.is_model_class(name)]
        if models:
            yield Origin(tree, parameter)
        elif any(map(library.is_beside, classes)):
            yield Origin(tree, parameter)
            return
        if not passed and (not models or models != classes):
            name = f"`{function.name.value}`" if isinstance(function, cst.FunctionDef) else "a lambda"
            yield Origin(tree, None, f"`{parameter.name.value}` is a parameter of {name}")
        for part in passed:
            if part is None:
                yield Origin(tree, None, f"`{parameter.name.value}` is passed in a way that is not followed")
            else:
                yield from self.of_part(part)

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
        if is_super(expression.value):
            found = self.objects.parent_method(tree, expression, name)
            yield from (Origin(where, method) for where, method in found)
            if not found:
                yield Origin(tree, None, f"`super().{name}` is not the program's own")
            return
        if name in self.program.library.inner and any(
            self._is_wrapper(origin) for origin in self.origins(tree, expression.value)
        ):
            yield from self.origins(tree, expression.value)
            return
        yield from self._read(tree, expression.value, name, expression)

    def _read(self, tree: Tree, owner: cst.BaseExpression, name: str, at: cst.BaseExpression) -> Iterator[Origin]:
        """`owner.name`."""
        is_open = False
        for origin in self.objects.attribute(tree, owner, name, at):
            if origin is None:
                is_open = True
            else:
                yield origin
        if not is_open:
            return
        found = False
        if name not in _MAPPING and self.containers.is_module_dict(tree, owner):
            for part in self.containers.items(tree, owner, name):
                found = True
                yield from self.of_part(part)
        if not found:
            read = at if isinstance(at, cst.Attribute) else None
            yield Origin(tree, None, f"`{tree.code(at)}` is an attribute that run time sets", read)

    def _is_wrapper(self, origin: Origin) -> bool:
        if not isinstance(origin.node, cst.Call):
            return False
        return self.program.library.is_wrapper(self.program.symbols.dotted(origin.tree, origin.node.func) or "")


def _element(node: cst.CSTNode | None, step: object) -> cst.BaseExpression | None:
    """The element of a tuple or list that is written out."""
    if not isinstance(node, (cst.Tuple, cst.List)) or not isinstance(step, int):
        return None
    if any(isinstance(element, cst.StarredElement) for element in node.elements):
        return None
    if not -len(node.elements) <= step < len(node.elements):
        return None
    return node.elements[step].value
