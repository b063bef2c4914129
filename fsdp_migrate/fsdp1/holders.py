"""Models that nothing wraps, and parts of which are: `self.block = FSDP(block)`, `model.blocks[i] = FSDP(block)`.

FSDP1 gathered those parts in the state dict of the model around them as well; FSDP2 gives DTensors there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import libcst as cst

from codemods.api import Context, ModelKind, Origin
from codemods.reading.code.enclosing import enclosing, is_self
from codemods.reading.code.words import last_name, words
from codemods.reading.models.parts import NO_MODELS
from codemods.reading.models.plain_objects import is_plain_class, is_plain_object, may_be_plain
from codemods.reading.wrappers.inner_module import is_asked_for
from codemods.tables.names import WRAPPER

from ..pyanalysis.ways import SAME_MODULE
from .class_tests import class_test
from .model_kinds import kind_of

if TYPE_CHECKING:
    from .program_model import FileContext

_DEPTH = 3
"""How many models deep a wrapped part is looked for."""


def parts_wrapped(files: Iterable[Context]) -> list[tuple[Context, cst.CSTNode, cst.BaseExpression]]:
    """Where a wrapped module becomes a part of something, and of what: the `model` of `model.blocks[i] = …`."""
    found: list[tuple[Context, cst.CSTNode, cst.BaseExpression]] = []
    for file in files:
        for call in file.nodes(cst.Call):
            if isinstance(call.func, cst.Name) and call.func.value == "setattr" and len(call.args) == 3:
                if _is_wrapped(file, call.args[2].value):
                    found += [(file, call, owner) for owner in _prefixes(call.args[0].value)]
        for store in file.nodes(cst.Assign):
            parts = [t.target for t in store.targets if isinstance(t.target, (cst.Attribute, cst.Subscript))]
            parts = [part for part in parts if not _is_the_same(file, part, store.value)]
            if parts and _is_wrapped(file, store.value):
                found += [(file, store, owner) for part in parts for owner in _prefixes(part.value)]
    return found


def _is_the_same(file: Context, part: cst.BaseExpression, value: cst.BaseExpression) -> bool:
    """`model.net = torch.compile(model.net)`, `vae.net = vae.net.to(device).eval()`: wrapped before, or not at all."""
    while isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        if value.func.attr.value not in SAME_MODULE:
            break
        value = value.func.value
    if isinstance(value, cst.Call) and value.args and file.fsdp1(value.func) is None and file.dotted(value.func):
        value = value.args[0].value
    return file.code(value) == file.code(part)


def _is_wrapped(file: Context, value: cst.BaseExpression) -> bool:
    """Whether a value is a wrapped module, or holds what is wrapped right there: `nn.ModuleList(map(FSDP, nets))`."""
    if isinstance(value, (cst.Name, cst.Attribute, cst.Call)) and ModelKind.FSDP in file.kinds(value):
        return True
    return any(_names_wrapper(file, node) for node in file.inside(value))


def _names_wrapper(file: Context, node: cst.CSTNode) -> bool:
    return isinstance(node, (cst.Name, cst.Attribute)) and file.fsdp1(node) in {WRAPPER, "wrap"}


def _prefixes(expression: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    while isinstance(expression, (cst.Attribute, cst.Subscript)):
        yield expression
        expression = expression.value
    if isinstance(expression, cst.Name):
        yield expression


def holds_parts(file: FileContext, node: cst.BaseExpression) -> bool:
    """Whether a part of a model may be wrapped by the time that the program comes to `node`."""
    if isinstance(node, cst.Attribute) and node.attr.value == "module" and is_asked_for(node, file):
        return False  # the way of DDP: what only holds wrapped parts has no such attribute
    return _is_compiled(file, node) or any(
        _is_around(file, node, where, call, owner)
        for where, call, owner in file.parts_wrapped
        if not file.comes_before(node, where, call) and _is_run(file, where, call)
    )


def _is_compiled(file: FileContext, node: cst.BaseExpression) -> bool:
    """Whether a wrapped model comes here inside of what `torch.compile` made of it, which a class test says no to."""
    tested = class_test(file, node)
    if tested is None or ModelKind.FSDP in tested or not file.wrapping.compiles(file.path):
        return False
    made = {origin.node for origin in file.origins(node) if kind_of(origin) is ModelKind.FSDP}
    given = [(where, call.args[0].value) for where in file.files("compile") for call in _compiling(where)]
    return bool(made) and any(origin.node in made for where, model in given for origin in where.origins(model))


def _compiling(file: Context) -> Iterator[cst.Call]:
    return (call for call in file.nodes(cst.Call) if file.dotted(call.func) == "torch.compile" and call.args)


def _is_run(file: FileContext, where: Context, call: cst.CSTNode) -> bool:
    """Whether a script that loads this file calls the function that wraps, as far as calls of it are seen."""
    callers = where.callers(call)
    return not callers or any(caller.path in file.loaded_with for caller, _ in callers)


def _is_around(
    file: FileContext, node: cst.BaseExpression, where: Context, call: cst.CSTNode, owner: cst.BaseExpression
) -> bool:
    own = enclosing(where, call, cst.ClassDef) if is_self(owner, where) else None
    if own is not None:
        return not is_plain_class(where, own) and _holds(file, node, own, _DEPTH)
    is_same_class = enclosing(where, call, cst.ClassDef) is enclosing(file, node, cst.ClassDef)
    if is_same_class and isinstance(node, cst.Attribute) and is_self(node.value, file):
        if where.code(owner) == file.code(node) and not is_plain_object(file, node):
            return True
    if is_plain_object(file, node) or (words(last_name(node)) & NO_MODELS and may_be_plain(file, node)):
        return False  # an object of the program's own, whose `state_dict` is its own
    made = {origin.node for origin in where.origins(owner) if isinstance(origin.node, cst.Call)}
    return any(origin.node in made or _is_given_wrapper(origin, where, call) for origin in file.origins(node))


def _is_given_wrapper(origin: Origin, where: Context, call: cst.CSTNode) -> bool:
    """`Library(net, wrapper=Wrapper())`, which hands itself to what wraps a part of it, a call that is not seen."""
    if not isinstance(origin.node, cst.Call) or where.callers(call):
        return False
    wrapping = {where.scope(call), enclosing(where, call, cst.ClassDef)}
    given = [made for argument in origin.node.args for made in origin.file.origins(argument.value)]
    classes = [kind for made in given if isinstance(made.node, cst.Call) for kind in made.file.origins(made.node.func)]
    return any(
        isinstance(made.node, (cst.ClassDef, cst.FunctionDef)) and made.node in wrapping for made in (*given, *classes)
    )


def _holds(file: FileContext, node: cst.BaseExpression, wanted: cst.ClassDef, depth: int) -> bool:
    """Whether an expression can be an object of a class, or of one that has an object of it as a part."""
    if is_self(node, file):
        around = enclosing(file, node, cst.ClassDef)
        return around is not None and _is_or_has(file, file, around, wanted, depth)
    return any(_makes(file, origin, wanted, depth) for origin in file.origins(node))


def _makes(program: FileContext, origin: Origin, wanted: cst.ClassDef, depth: int) -> bool:
    if not isinstance(origin.node, cst.Call):
        return False
    classes = origin.file.origins(origin.node.func)
    return any(
        isinstance(made.node, cst.ClassDef) and _is_or_has(program, made.file, made.node, wanted, depth)
        for made in classes
    )


def _is_or_has(program: FileContext, file: Context, owner: cst.ClassDef, wanted: cst.ClassDef, depth: int) -> bool:
    lineage = program.lineage(file, owner)
    if any(_has_state_dict(each) for each in lineage):
        return False  # its own, and not a module's
    if wanted in lineage:
        return True
    if not depth or is_plain_class(file, owner):
        return False
    stored = [node for node in file.inside(owner) if isinstance(node, cst.Assign)]
    return any(
        isinstance(target.target, cst.Attribute)
        and is_self(target.target.value, file)
        and any(_makes(program, origin, wanted, depth - 1) for origin in file.origins(store.value))
        for store in stored
        for target in store.targets
    )


def _has_state_dict(owner: cst.ClassDef) -> bool:
    return any(isinstance(node, cst.FunctionDef) and node.name.value == "state_dict" for node in owner.body.body)
