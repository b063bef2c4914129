"""The module inside of a wrapper, where the program goes on with both: `wrapped = FSDP(model)`."""

from __future__ import annotations

import libcst as cst

from codemods.reading.enclosing import enclosing
from codemods.reading.manual import is_constructor
from codemods.reading.places import place
from codemods.reading.wrapped import is_on_another_way, wrapped_module
from codemods.vocabulary import File


def is_inner_module(model: cst.BaseExpression, use: cst.Call, file: File) -> bool:
    """Whether a constructor call wraps the very module that is used, and gives the result another name."""
    return any(_wraps(call, model, use, file) for call in file.nodes(cst.Call) if is_constructor(file, call))


def _wraps(call: cst.Call, model: cst.BaseExpression, use: cst.Call, file: File) -> bool:
    module = wrapped_module(call)
    inner = place(module) if module is not None else None
    if inner is None or inner != place(model) or not _has_another_name(call, inner, file):
        return False
    if file.scope(call) is file.scope(model):
        below = file.span(call)[0] < file.span(model)[0]
        return below and file.same_meaning(model, call) and not is_on_another_way(file, call, use)
    return inner.startswith("self.") and enclosing(file, call, cst.ClassDef) is enclosing(file, model, cst.ClassDef)


def _has_another_name(call: cst.Call, inner: str, file: File) -> bool:
    assignment = file.parent(call)
    if not isinstance(assignment, cst.Assign):
        return False
    names = {place(target.target) for target in assignment.targets}
    return None not in names and inner not in names
