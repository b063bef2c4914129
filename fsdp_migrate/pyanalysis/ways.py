"""The ways that lead to a value, one for each kind of expression."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import libcst as cst

from .annotations import annotated_classes
from .callers import Function
from .containers import Part, constant
from .decorated import given_instead
from .definitions import (
    class_of,
    first_parameter,
    is_class_method,
    is_context_manager,
    is_generator,
    is_super,
    returns,
    yields,
)
from .flow import comprehension
from .origin import Origin
from .scopes import ANY, EACH, REST, Binding, Binds, Path
from .stores import table_owner
from .symbols import Defined, Outside, OwnModule
from .tests_around import texts_at
from .tree import Tree

if TYPE_CHECKING:
    from .values import Values

SAME_MODULE = frozenset(
    {"apply", "bfloat16", "cpu", "cuda", "double", "eval", "float", "half", "npu", "requires_grad_", "share_memory"}
    | {"to", "to_empty", "train", "type", "xpu"}
)
"""`nn.Module` methods that return the module they are called on."""
_GIVES_BACK = {
    "asyncio.create_task": 0,
    "asyncio.ensure_future": 0,
    "asyncio.run": 0,
    "asyncio.shield": 0,
    "asyncio.wait_for": 0,
    "copy.copy": 0,
    "functools.reduce": 2,
    "torch.compile": 0,
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.checkpoint_wrapper": 0,
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.offload_wrapper": 0,
    "typing.assert_type": 0,
    "typing.cast": 1,
    "typing_extensions.assert_type": 0,
    "typing_extensions.cast": 1,
    "weakref.proxy": 0,
}
"""Functions of libraries that return one of their arguments, or what stands for it: the argument's place."""
_MAPPING = frozenset({"items", "keys", "pop", "update", "values"})
"""Methods of a `ModuleDict`, whose items are attributes as well."""
_TAKES_OUT = frozenset({"get", "pop", "popleft", "setdefault"})
"""Methods of containers that give one of the items."""

_CONTAINERS = (cst.BaseList, cst.BaseDict, cst.BaseSet, cst.Tuple, cst.BinaryOperation)


class Ways:
    """Answers for one program: where an expression leads in one step, and from there on."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._program = values.program

    def of_part(self, tree: Tree, expression: cst.BaseExpression, path: Path) -> Iterator[Origin]:
        """A part of the value: what is put there, and more that is not seen, but for the elements of a tuple."""
        step, rest = path[0], path[1:]
        if step is REST:
            reason = f"the rest of `{tree.code(expression)}`"
            for origin in self._values.origins(tree, expression):
                if isinstance(origin.node, _CONTAINERS):
                    yield Origin(origin.tree, origin.node, reason)
            yield Origin(tree, None, reason)
            return
        if step is EACH:
            for part in self._values.containers.turns(tree, expression, rest):
                yield from self._values.of_part(part)
            yield Origin(tree, None, f"what `{tree.code(expression)}` gives is not followed")
            return
        is_written_out = True
        for origin in self._values.origins(tree, expression):
            element = _element(origin.node, step)
            if element is not None:
                yield from self._values.origins(origin.tree, element, rest)
            else:
                is_written_out = False
                yield Origin(tree, None, "an element of a value that is made elsewhere")
        if not is_written_out:
            for part in self._values.containers.items(tree, expression, None if step is ANY else step, rest):
                yield from self._values.of_part(part)

    def of_whole(self, tree: Tree, expression: cst.BaseExpression) -> Iterator[Origin]:
        if isinstance(expression, cst.Name):
            yield from self._of_name(tree, expression)
        elif isinstance(expression, cst.Attribute):
            yield from self._of_attribute(tree, expression)
        elif isinstance(expression, cst.Call):
            yield from self._of_call(tree, expression)
        elif isinstance(expression, cst.Subscript):
            yield from self._of_subscript(tree, expression)
        elif isinstance(expression, cst.IfExp):
            yield from self._values.origins(tree, expression.body)
            yield from self._values.origins(tree, expression.orelse)
        elif isinstance(expression, cst.BooleanOperation):
            yield from self._values.origins(tree, expression.left)
            yield from self._values.origins(tree, expression.right)
        elif isinstance(expression, cst.NamedExpr):
            yield from self._values.origins(tree, expression.value)
        elif isinstance(expression, cst.Await):
            yield from self._values.origins(tree, expression.expression)
        else:
            yield Origin(tree, expression)

    def _of_name(self, tree: Tree, name: cst.Name) -> Iterator[Origin]:
        own = comprehension(tree, name)
        if own is not None:
            yield from self._of_binding(tree, own)
            return
        symbols = self._program.symbols.every(tree, name)
        if not symbols:
            yield Origin(tree, name)
        for symbol in symbols:
            if isinstance(symbol, Outside):
                yield Origin(tree, name)
            elif isinstance(symbol, Defined):
                yield from self._set_from_outside(symbol)
                for binding in self._values.bindings(tree, name, symbol):
                    taken = _taken_by_name(binding) if symbol.tree is tree else None
                    if taken is None:
                        yield from self._of_binding(symbol.tree, binding)
                    else:
                        yield from self._named(tree, taken.args[0].value, taken.args[1].value, taken, name)
                        yield Origin(tree, taken)
            else:
                yield Origin(tree, None, f"`{name.value}` is a module")

    def _set_from_outside(self, variable: Defined) -> Iterator[Origin]:
        """`state.net = net`, where `state` is a file of the program."""
        if isinstance(variable.scope.node, cst.Module):
            for store in self._values.objects.stores_named(variable.name):
                if self._program.symbols.of(store.tree, store.owner) == OwnModule(variable.tree):
                    yield from self._values.origins(store.tree, store.value, store.path)

    def _of_binding(self, tree: Tree, binding: Binding) -> Iterator[Origin]:
        if binding.how is Binds.VALUE and binding.value is not None:
            yield from self._values.origins(tree, binding.value, binding.path)
        elif binding.how is Binds.ENTERED and binding.value is not None:
            yield from self._entered(tree, binding.value)
        elif binding.how is Binds.DEFINITION:
            yield Origin(tree, binding.node)
        elif binding.how is Binds.PARAMETER:
            yield from self._of_parameter(tree, cst.ensure_type(binding.node, cst.Param))
        else:
            if isinstance(binding.node, cst.AugAssign) and isinstance(binding.node.target, cst.Name):
                before = self._values.origins(tree, binding.node.target)
                yield from (origin for origin in before if isinstance(origin.node, _CONTAINERS))
            yield Origin(tree, None, f"`{binding.name}` is set in a way that is not followed")

    def _entered(self, tree: Tree, manager: cst.BaseExpression) -> Iterator[Origin]:
        """`with manager as x`."""
        for origin in self._values.origins(tree, manager):
            given, decisive = self._values.solver.both(partial(self._given_on_entry, origin))
            for where, value in given:
                yield from self._values.origins(where, value)
            if decisive == []:
                yield Origin(tree, None, "a context manager gives it")

    def _given_on_entry(self, manager: Origin) -> list[tuple[Tree, cst.BaseExpression]]:
        call = manager.node
        if not isinstance(call, cst.Call):
            return []
        if self._program.symbols.dotted(manager.tree, call.func) == "contextlib.nullcontext":
            return [(manager.tree, argument.value) for argument in call.args]
        makers = [made for made in self._values.functions(manager.tree, call.func) if is_context_manager(made[1])]
        methods = ("__enter__", "__aenter__")
        entering = [found for name in methods for found in self._values.objects.methods_of(manager.tree, call, name)]
        given = [(where, value) for where, function in makers for value in yields(where, function)]
        return given + [(where, value) for where, function in entering for value in returns(where, function)]

    def _of_subscript(self, tree: Tree, expression: cst.Subscript) -> Iterator[Origin]:
        """`models["actor"]`: what is put there, and the subscript itself, since more can be put there unseen."""
        index = expression.slice[0].slice if len(expression.slice) == 1 else None
        if isinstance(index, cst.Index):
            key = constant(index.value)
            owner = table_owner(expression.value)
            if owner is not None and isinstance(key, str):
                yield from self._read(tree, owner, key, expression)
                return
            if owner is not None:
                yield from self._named(tree, owner, index.value, expression, expression)
            for part in self._values.containers.items(tree, expression.value, key):
                yield from self._values.of_part(part)
            for origin in self._values.origins(tree, expression.value):
                made = self._values.objects.methods_of(origin.tree, origin.node, "__getitem__") if origin.node else ()
                for where, method in made:
                    for returned in returns(where, method):
                        yield from self._values.origins(where, returned)
            if isinstance(key, str) and self._values.containers.has_items_as_attributes(tree, expression.value):
                for part in self._values.objects.named(tree, expression.value, key, expression):
                    yield from filter(self._values.is_model, self._values.of_part(part))
            if _is_whole(expression.value):
                return
        yield Origin(tree, expression)

    def _of_call(self, tree: Tree, call: cst.Call) -> Iterator[Origin]:
        same = self.same(tree, call)
        if same is not None:
            yield from self._values.origins(tree, same)
            return
        called, decisive = self._values.solver.both(lambda: self._called(tree, call))
        if decisive == []:
            yield from self._of_unseen_call(tree, call)
        for where, maker in self._values.objects.methods_of(tree, call, "__new__"):
            for returned in returns(where, maker):  # what is no model is the new object
                yield from filter(self._values.is_model, self._values.origins(where, returned))
        is_direct = not any(isinstance(o.node, cst.Call) for o in self._values.origins(tree, call.func))  # no `partial`
        for where, function in called:
            if isinstance(function, cst.FunctionDef) and is_generator(where, function):
                yield Origin(tree, call)
            instead, gives_too = given_instead(self._values, tree, call, where, function)
            yield from instead
            if instead and not gives_too:
                continue
            for at, returned in self._values.given_back.results(tree, call if is_direct else None, where, function):
                yield from self._values.origins(at, returned)

    def same(self, tree: Tree, expression: cst.BaseExpression) -> cst.BaseExpression | None:
        """What a library's call gives back as it is: `net` for `net.to(0)`, `torch.compile(net)`."""
        if not isinstance(expression, cst.Call):
            return None
        if isinstance(expression.func, cst.Attribute) and expression.func.attr.value in SAME_MODULE:
            return expression.func.value
        if isinstance(expression.func, cst.Name) and expression.func.value == "getattr":
            return self._inner_or_itself(tree, [argument.value for argument in expression.args])
        place = _GIVES_BACK.get(self._program.symbols.dotted(tree, expression.func) or "")
        return expression.args[place].value if place is not None and place < len(expression.args) else None

    def _inner_or_itself(self, tree: Tree, given: list[cst.BaseExpression]) -> cst.BaseExpression | None:
        """`model` of `getattr(model, "module", model)`, which has none where nothing is around it."""
        is_inner = len(given) == 3 and constant(given[1]) in self._program.library.inner
        return given[0] if is_inner and tree.code(given[0]) == tree.code(given[2]) else None

    def _called(self, tree: Tree, call: cst.Call) -> list[tuple[Tree, Function]]:
        made = self._values.origins(tree, call.func)
        lambdas: list[tuple[Tree, Function]] = [(o.tree, o.node) for o in made if isinstance(o.node, cst.Lambda)]
        return [*lambdas, *self._values.functions(tree, call.func)]

    def _of_unseen_call(self, tree: Tree, call: cst.Call) -> Iterator[Origin]:
        """A call of what is not the program's: of a container's method, of a builtin, or of anything."""
        values = [argument.value for argument in call.args]
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in _TAKES_OUT:
            key = constant(values[0]) if values else None
            for part in self._values.containers.items(tree, call.func.value, key):
                yield from self._values.of_part(part)
        elif isinstance(call.func, cst.Name) and call.func.value == "next" and values:
            for part in self._values.containers.turns(tree, values[0]):
                yield from self._values.of_part(part)
        elif isinstance(call.func, cst.Name) and call.func.value == "getattr" and len(values) > 1:
            yield from self._named(tree, values[0], values[1], call, call)
        elif isinstance(call.func, cst.Attribute) and call.func.attr.value == "get_submodule" and values:
            yield from self._named(tree, call.func.value, values[0], call, call)
        elif isinstance(call.func, cst.Attribute) and call.func.attr.value == "enter_context" and values:
            yield from self._entered(tree, values[0])
        elif isinstance(call.func, cst.Name) and call.func.value == "type" and len(values) == 1:
            yield from self._classes(tree, values[0])
        else:
            for where, function in self._values.callers.found_by_name(call):
                for returned in returns(where, function):
                    yield from filter(self._values.is_model, self._values.origins(where, returned))
        yield Origin(tree, call)

    def _classes(self, tree: Tree, expression: cst.BaseExpression) -> Iterator[Origin]:
        """`type(self)`."""
        yield from (Origin(*owner) for owner in self._values.objects.seen(tree, expression).classes)

    def _named(
        self, tree: Tree, owner: cst.BaseExpression, name: cst.BaseExpression, call: cst.BaseExpression, at: cst.CSTNode
    ) -> Iterator[Origin]:
        """An attribute that a call takes by its name, as it is `at` a place: of several names, what can be a model."""
        if isinstance(name, cst.SimpleString):
            read = self._read(tree, owner, str(name.evaluated_value), call)
            yield from (origin for origin in read if origin.node is not None)
            return
        objects, asked = self._values.objects, texts_at(tree, name, at)
        names = asked.only or objects.names(tree, name)
        if names is not None:
            parts = [
                part for each in sorted(names) for part in objects.named(tree, owner, each, call) if asked.has(each)
            ]
        elif self._is_parameter(tree, name):
            parts = []
        else:
            parts = [Part(*found[:-1]) for found in objects.attributes(tree, owner, call) if asked.has(found.name)]
        for part in parts:
            yield from filter(self._values.is_model, self._values.of_part(part))

    def _is_parameter(self, tree: Tree, name: cst.BaseExpression) -> bool:
        """Whether each caller says which attribute: a getter for all of them, and not for the models."""
        scope = tree.scope_of[name].lookup(name.value) if isinstance(name, cst.Name) else None
        bindings = scope.bindings[name.value] if scope is not None and isinstance(name, cst.Name) else ()
        return any(binding.how is Binds.PARAMETER for binding in bindings)

    def _of_parameter(self, tree: Tree, parameter: cst.Param) -> Iterator[Origin]:
        function = tree.scope_of[parameter].node
        if not isinstance(function, Function):
            yield Origin(tree, None, f"`{parameter.name.value}` is a parameter")
            return
        if parameter in (function.params.star_arg, function.params.star_kwarg):
            yield Origin(tree, parameter, f"`{parameter.name.value}` takes what no other parameter does")
            return
        owner = class_of(tree, function) if isinstance(function, cst.FunctionDef) else None
        if owner is not None and is_class_method(function) and parameter.name.value == first_parameter(function):
            yield from (Origin(*klass) for klass in [(tree, owner), *self._values.objects.heirs(tree, owner)])
        passed, decisive = self._values.solver.both(
            lambda: list(self._values.callers.passed(tree, function, parameter))
        )
        library, classes = self._program.library, annotated_classes(self._program.symbols, tree, parameter)
        models = [name for name in classes if library.is_model_class(name)]
        if models:
            yield Origin(tree, parameter)
        elif any(map(library.is_beside, classes)):
            yield Origin(tree, parameter)
            return
        if decisive == [] and (not models or models != classes):
            name = f"`{function.name.value}`" if isinstance(function, cst.FunctionDef) else "a lambda"
            yield Origin(tree, parameter, f"`{parameter.name.value}` is a parameter of {name}")
        for part in passed:
            if part is None:
                yield Origin(tree, None, f"`{parameter.name.value}` is passed in a way that is not followed")
            else:
                yield from self._values.of_part(part)

    def _of_attribute(self, tree: Tree, expression: cst.Attribute) -> Iterator[Origin]:
        symbols = self._program.symbols.every(tree, expression)
        for symbol in symbols:
            if isinstance(symbol, Outside):
                yield Origin(tree, expression)
            elif isinstance(symbol, Defined):
                for binding in symbol.scope.bindings[symbol.name]:
                    yield from self._of_binding(symbol.tree, binding)
                yield from self._set_from_outside(symbol)
            else:
                yield Origin(tree, None, "a module")
        if symbols:
            return
        name = expression.attr.value
        if name == "__dict__":
            yield Origin(tree, expression)
            return
        if name == "__class__":
            yield from self._classes(tree, expression.value)
            return
        if is_super(expression.value):
            parent = cst.ensure_type(expression.value, cst.Call)
            found, decisive = self._values.solver.both(lambda: self._values.objects.parent_method(tree, parent, name))
            yield from (Origin(where, method) for where, method in found)
            if decisive == []:
                yield Origin(tree, None, f"`super().{name}` is not the program's own")
            return
        if name in self._program.library.inner:
            wrapped, decisive_ones = self._values.solver.both(lambda: self._wrapped(tree, expression.value))
            if wrapped:
                yield from self._values.origins(tree, expression.value)
            if decisive_ones != []:
                return
        yield from self._read(tree, expression.value, name, expression)

    def _read(self, tree: Tree, owner: cst.BaseExpression, name: str, at: cst.BaseExpression) -> Iterator[Origin]:
        """`owner.name`."""
        sources, decisive = self._values.solver.both(
            lambda: list(self._values.objects.attribute(tree, owner, name, at))
        )
        for source, _ in sources:
            yield from self._values.of_part(source) if isinstance(source, Part) else [Origin(*source)]
        read = at if isinstance(at, cst.Attribute) else None
        at_run_time = Origin(tree, None, f"`{tree.code(at)}` is an attribute that run time sets", read)
        if decisive is None or any(is_all for _, is_all in decisive):
            if self._values.objects.is_set_by_name(tree, owner, [source for source, _ in sources]):
                yield at_run_time
            return
        items, decisive_items = self._values.solver.both(lambda: self._items(tree, owner, name))
        for part in items:
            yield from self._values.of_part(part)
        if decisive_items == []:
            yield at_run_time

    def _items(self, tree: Tree, owner: cst.BaseExpression, name: str) -> list[Part]:
        """The items of a `ModuleDict`, and of a dict of the program's own, are attributes as well."""
        if name in _MAPPING or not self._values.containers.has_items_as_attributes(tree, owner):
            return []
        return list(self._values.containers.items(tree, owner, name))

    def _wrapped(self, tree: Tree, expression: cst.BaseExpression) -> list[Origin]:
        return [origin for origin in self._values.origins(tree, expression) if self._is_wrapper(origin)]

    def _is_wrapper(self, origin: Origin) -> bool:
        if not isinstance(origin.node, cst.Call):
            return False
        return self._program.library.is_wrapper(self._program.symbols.dotted(origin.tree, origin.node.func) or "")


def _taken_by_name(binding: Binding) -> cst.Call | None:
    """`value = getattr(self, name)`: what it can be depends on what `name` is known to be where it is used."""
    call = binding.value
    if binding.how is not Binds.VALUE or binding.path or not isinstance(call, cst.Call) or len(call.args) < 2:
        return None
    is_getattr = isinstance(call.func, cst.Name) and call.func.value == "getattr"
    return call if is_getattr and isinstance(call.args[1].value, cst.Name) else None


def _element(node: cst.CSTNode | None, step: object) -> cst.BaseExpression | None:
    """The element of a tuple or list that is written out."""
    if not isinstance(node, (cst.Tuple, cst.List)) or not isinstance(step, int):
        return None
    if any(isinstance(element, cst.StarredElement) for element in node.elements):
        return None
    if not -len(node.elements) <= step < len(node.elements):
        return None
    return node.elements[step].value


def _is_whole(table: cst.BaseExpression) -> bool:
    """Whether a table is written where it is read, `{"bf16": a, "fp32": b}[key]`: nobody else can put anything in."""
    return isinstance(table, cst.Dict) and all(isinstance(element, cst.DictElement) for element in table.elements)
