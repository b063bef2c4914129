"""Places that hold a wrapped model alone, though a plain one was there before: `self.net = FSDP(self.net)`.

What is followed without regard to time finds both there. An attribute that the constructor of its class sets to a
wrapped model, on every way, holds that wherever a method reads it; and a parameter, what its callers pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.code.enclosing import is_self

from ..pyanalysis.definitions import class_of
from ..pyanalysis.objects import is_container
from ..pyanalysis.stores import AttributeStore
from .class_tests import bound_here, set_above

if TYPE_CHECKING:
    from .program_model import FileContext

_NO_MODELS = (cst.BaseComp, cst.BaseNumber, cst.BaseString, cst.Tuple)
_TABLES = ("Counter", "EasyDict")
_CALLS_DOWN = 3
"""How far calls are followed from a constructor to what it runs before it wraps."""
_CALLS_UP = 2
"""How far calls are followed from a method to the constructors that run it."""


class Settled:
    """Answers for one program."""

    def __init__(self) -> None:
        self._asked: set[cst.CSTNode] = set()
        """The parameters whose callers are being looked at: what a function passes to itself says nothing."""

    def is_wrapped_by_then(self, file: FileContext, node: cst.BaseExpression) -> bool:
        """Whether each way to a place has wrapped what it holds: none of the models that are found there is plain."""
        value: cst.BaseExpression | None = None
        if isinstance(node, cst.Name):
            if self._is_passed_wrapped(file, node):
                return True
            value = bound_here(file, node)
        elif isinstance(node, cst.Attribute):
            value = set_above(file, node) or _set_by_constructor(file, node)
        return value is not None and file.kinds(value) == {ModelKind.FSDP}

    def _is_passed_wrapped(self, file: FileContext, name: cst.Name) -> bool:
        """Whether it is a parameter that nothing else is bound to, and each call passes a wrapped model for it."""
        scope = file.tree.scope_of[name].lookup(name.value)
        bindings = scope.bindings[name.value] if scope is not None else ()
        parameter = bindings[0].node if len(bindings) == 1 else None
        if scope is None or not isinstance(parameter, cst.Param) or not isinstance(scope.node, cst.FunctionDef):
            return False
        if parameter in self._asked:
            return False
        self._asked.add(parameter)
        try:
            passed = file.passed_to(scope.node.body, name.value)
            calls = {call for _, call, _ in passed}
            others = [call for _, call in file.callers(scope.node.body) if call not in calls]
            if parameter.default is not None or any(argument.star for call in others for argument in call.args):
                return False
            models = [(where, value) for where, _, value in passed if not _is_no_model(where, value)]
            return bool(models) and all(where.kinds(value) == {ModelKind.FSDP} for where, value in models)
        finally:
            self._asked.remove(parameter)


def _is_no_model(file: FileContext, value: cst.BaseExpression) -> bool:
    """Whether it is a number, a text or a table: what it is passed to has the same name, and is something else."""
    made = file.origins(value)
    return bool(made) and all(each.node is not None and _is_value(each.file, each.node) for each in made)


def _is_value(file: Context, node: cst.CSTNode) -> bool:
    if isinstance(node, _NO_MODELS) or is_container(node):
        return True
    return isinstance(node, cst.Call) and (file.dotted(node.func) or "").endswith(_TABLES)


def _set_by_constructor(file: FileContext, node: cst.Attribute) -> cst.BaseExpression | None:
    """What the constructor of the class around gives an attribute of `self` last, where nobody sets it later."""
    tree, method, root = file.tree, file.scope(node), _root(node)
    owner = class_of(tree, method) if isinstance(method, cst.FunctionDef) else None
    constructor = _constructor(owner) if owner is not None and is_self(root, file) else None
    if constructor is None or constructor is method:
        return None
    text = file.code(node)
    lines = [each for each in _assignments(constructor) if [file.code(t.target) for t in each.targets] == [text]]
    if not lines or _may_run_before(file, method, constructor, lines[-1]):
        return None
    held: cst.BaseExpression = node
    while isinstance(held, cst.Attribute):  # `self.model.generator`: nor is there another `self.model` later
        if not all(_is_early(*store, constructor, lines[-1], root is held.value) for store in file.stores(held)):
            return None
        held = held.value
    return lines[-1].value


def _root(node: cst.BaseExpression) -> cst.BaseExpression:
    while isinstance(node, cst.Attribute):
        node = node.value
    return node


def _constructor(owner: cst.ClassDef) -> cst.FunctionDef | None:
    methods = (each for each in owner.body.body if isinstance(each, cst.FunctionDef))
    return next((each for each in methods if each.name.value == "__init__"), None)


def _assignments(function: cst.FunctionDef) -> Iterator[cst.Assign]:
    """Those that run whenever the function does."""
    for line in function.body.body:
        if isinstance(line, cst.SimpleStatementLine):
            yield from (each for each in line.body if isinstance(each, cst.Assign))


def _may_run_before(file: FileContext, method: cst.CSTNode, constructor: cst.FunctionDef, line: cst.Assign) -> bool:
    """Whether a constructor may run a method above a line, or on it."""
    order = file.tree.order
    early = [call for call in file.calls(constructor) if order[call] < order[line] or file.tree.contains(line, call)]
    functions = [found for call in early for found in file.runs(call)]
    seen: set[cst.CSTNode] = set()
    for _ in range(_CALLS_DOWN):
        new = {each: where for where, each in functions if each not in seen}
        seen |= new.keys()
        functions = [found for each, where in new.items() for call in where.calls(each) for found in where.runs(call)]
    return method in seen


def _is_early(
    file: FileContext, store: AttributeStore, constructor: cst.FunctionDef, line: cst.Assign, is_own: bool
) -> bool:
    """Whether a store runs no later than a line of a constructor, or while another object is made that has the
    attribute.
    """
    function = file.scope(store.owner)
    if function is constructor:
        return file.tree.contains(line, store.owner) or file.tree.order[store.owner] < file.tree.order[line]
    return not is_own and is_self(store.owner, file) and _runs_at_birth(file, function, _CALLS_UP)


def _runs_at_birth(file: FileContext, function: cst.CSTNode, ups: int) -> bool:
    if not isinstance(function, cst.FunctionDef):
        return False
    if function.name.value == "__init__":
        return True
    callers = file.callers(function.body) if ups else ()
    return bool(callers) and all(_runs_at_birth(where, where.scope(call), ups - 1) for where, call in callers)
