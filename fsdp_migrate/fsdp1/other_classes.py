"""Classes of the program that no wrapped model is an object of: `model = Manual(net) if manual else FSDP(net)`.

FSDP1's wrapper was of no class of the program, so that `isinstance(model, Manual)` told both apart. An FSDP2 model is
of the class of the module that was wrapped: the test tells as much only where that is seen to be another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import libcst as cst

from codemods.api import ModelKind, Origin
from codemods.reading.wrappers.asked_classes import Asking
from codemods.reading.wraps.wrapped import wrapped_module

from .model_kinds import kind_of

if TYPE_CHECKING:
    from .program_model import FileContext


def is_of_another_class(file: FileContext, wrap: Origin, owners: Sequence[Origin]) -> bool:
    """Whether a constructor call wraps what is seen to be an object of none of these classes."""
    module = wrapped_module(wrap.node) if isinstance(wrap.node, cst.Call) else None
    made = [each for origin in wrap.file.origins(module) for each in _classes(origin)] if module is not None else []
    families = {each.node for owner in owners for each in file.family(owner)}
    return bool(made) and all(each is not None and each.node not in families for each in made)


def _classes(made: Origin) -> Sequence[Origin | None]:
    """The classes that an object can be of; None where that is not seen."""
    if not isinstance(made.node, cst.Call):
        return [None]
    called = made.file.dotted(made.node.func)
    if called is not None:  # a class by its name; what a function of a library gives can be anything
        return [Origin(made.file, None) if called.rpartition(".")[2][:1].isupper() else None]
    return [each if isinstance(each.node, cst.ClassDef) else None for each in made.file.origins(made.node.func)]


def is_asked_for_another(file: FileContext, node: cst.BaseExpression, asked: Sequence[Asking]) -> bool:
    """Whether classes that a model is tested for leave out what is wrapped: another branch makes one of those."""
    owners = [origin for where, each in asked for origin in where.origins(each)]
    if not owners or not all(isinstance(each.node, cst.ClassDef) for each in owners):
        return False
    origins = file.origins(node)
    classes = {each.node for each in owners}
    is_made = any(each is not None and each.node in classes for origin in origins for each in _classes(origin))
    wraps = [origin for origin in origins if kind_of(origin) is ModelKind.FSDP]
    return is_made and bool(wraps) and all(is_of_another_class(file, each, owners) for each in wraps)
