"""What kind of model, or of something else, is made at one place."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from codemods.api import Context, ModelKind, Origin
from codemods.reading.wraps.manual import context_of, is_factory
from codemods.tables.names import WRAPPER, fsdp1_name


def kinds_of(origin: Origin) -> frozenset[ModelKind]:
    """All that it can be: a parameter can be annotated with several classes, and a class can be chosen of several."""
    if isinstance(origin.node, cst.Call):
        return _made_by_one_of(origin.file, origin.node) or frozenset({kind_of(origin)})
    if not isinstance(origin.node, cst.Param):
        return frozenset({kind_of(origin)})
    file = origin.file
    classes = file.annotated(origin.node)
    kinds = [ModelKind.FSDP if fsdp1_name(name) == WRAPPER else object_of(name) for name in classes]
    return frozenset(kinds or [ModelKind.UNKNOWN])


def kind_of(origin: Origin) -> ModelKind:
    """Something else only where that is seen: what a library returns, or an object of one of the program's classes."""
    node = origin.node
    if isinstance(node, cst.Call):
        return _held_by_call(origin.file, node)
    if isinstance(node, cst.Param):
        return _held_by_parameter(origin.file, node)
    if isinstance(node, cst.Attribute) and origin.file.fsdp1(node) == f"{WRAPPER}.fsdp_modules":
        return ModelKind.FSDP  # an element of what it returns
    seen = (cst.BaseNumber, cst.BaseString, cst.BaseComp, cst.Dict, cst.List, cst.Tuple, cst.Set, cst.Lambda)
    if isinstance(node, (*seen, cst.FunctionDef, cst.ClassDef)) or origin.is_none:
        return ModelKind.OTHER
    if isinstance(node, (cst.Name, cst.Attribute)) and origin.file.dotted(node) is not None:
        return ModelKind.OTHER
    return ModelKind.UNKNOWN


def _held_by_parameter(file: Context, parameter: cst.Param) -> ModelKind:
    """`model: FSDP`, `model: Optional["FSDP"]`, `model: DDP`."""
    held = kinds_of(Origin(file, parameter))
    return next(kind for kind in (ModelKind.FSDP, ModelKind.DDP, *held) if kind in held)


def _held_by_call(file: Context, call: cst.Call) -> ModelKind:
    if file.fsdp1(call.func) == WRAPPER or context_of(file, call) is not None:
        return ModelKind.FSDP
    if file.fsdp1(call.func) == "wrap":
        return ModelKind.FSDP if file.wrapping.is_any else ModelKind.UNKNOWN
    made = file.dotted(call.func)
    if made is not None:
        return object_of(made)
    origins = file.origins(call.func)
    if any(_is_wrapper(origin) for origin in origins):
        return ModelKind.FSDP if len(origins) == 1 else ModelKind.UNKNOWN
    for origin in origins:
        if isinstance(origin.node, cst.Call) and _is_of_wrapper(origin.file, origin.node):
            return ModelKind.FSDP
        if isinstance(origin.node, cst.ClassDef):
            return ModelKind.OTHER
    return ModelKind.OTHER if _is_a_librarys(file, call.func, origins) else ModelKind.UNKNOWN


def _is_of_wrapper(file: Context, call: cst.Call) -> bool:
    """Whether a call is given the class, as `partial(FSDP, …)` is, or a partial of it."""
    return bool(call.args) and (file.fsdp1(call.args[0].value) == WRAPPER or is_factory(file, call))


def _is_a_librarys(file: Context, method: cst.BaseExpression, defined: Sequence[Origin]) -> bool:
    """Whether it is a method that a class of the program has from a library: `Net.from_pretrained(path)`."""
    if not isinstance(method, cst.Attribute) or any(each.node is not None for each in defined):
        return False
    owners = file.origins(method.value)
    return bool(owners) and all(isinstance(each.node, cst.ClassDef) and each.node.bases for each in owners)


def _made_by_one_of(file: Context, call: cst.Call) -> frozenset[ModelKind]:
    """What `(FSDP if sharded else DDP)(net)` makes; nothing where FSDP's class is none of several."""
    classes = file.origins(call.func) if file.dotted(call.func) is None else ()
    if len(classes) < 2 or not any(_is_wrapper(each) for each in classes):
        return frozenset()
    return frozenset(map(_made_by, classes))


def _made_by(made: Origin) -> ModelKind:
    if _is_wrapper(made):
        return ModelKind.FSDP
    if isinstance(made.node, cst.ClassDef):
        return ModelKind.OTHER
    return (
        object_of(made.file.dotted(made.node))
        if isinstance(made.node, (cst.Name, cst.Attribute))
        else ModelKind.UNKNOWN
    )


def object_of(dotted: str | None) -> ModelKind:
    """What an object of a library's class is; of any other class, it is not said."""
    if dotted is None:
        return ModelKind.UNKNOWN
    return ModelKind.DDP if dotted.endswith((".DistributedDataParallel", ".DataParallel")) else ModelKind.OTHER


def _is_wrapper(origin: Origin) -> bool:
    return isinstance(origin.node, (cst.Name, cst.Attribute)) and origin.file.fsdp1(origin.node) == WRAPPER
