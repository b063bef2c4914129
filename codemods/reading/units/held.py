"""Which attributes of a model a policy makes units of their own, by the classes that both name."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from codemods.api import Context, NotStatic, Origin
from codemods.reading.code.places import assigned, place
from codemods.reading.units.policies import policy_classes
from codemods.reading.units.predicates import class_policies
from codemods.reading.wraps.manual import argument_name


def unit_classes(ctx: Context, wrap: cst.Call) -> set[cst.CSTNode | str]:
    """The classes of a policy, as far as they are seen: definitions, and the names of a library's."""
    given = [a.value for a in wrap.args if argument_name(a) == "auto_wrap_policy"]
    found: set[cst.CSTNode | str] = set()
    for origin in (each for value in given for each in ctx.origins(value)):
        try:
            policies = class_policies(origin)
        except NotStatic:
            return set()
        for policy in policies:
            found |= {each for o in policy.file.elements(policy_classes(policy)) for each in _class(o)}
    return found


def is_unit(layer: str, classes: Sequence[tuple[Context, cst.ClassDef]], units: set[cst.CSTNode | str]) -> bool:
    """Whether all that the model puts into an attribute is of a class that the policy wraps."""
    held = [
        (where, value)
        for where, owner in classes
        for assign in where.inside(owner)
        if isinstance(assign, cst.Assign)
        for target, value in assigned(assign)
        if place(target) == f"self.{layer}"
    ]
    return bool(held) and all(
        isinstance(value, cst.Call) and any(kind in units for o in where.origins(value.func) for kind in _class(o))
        for where, value in held
    )


def _class(origin: Origin) -> list[cst.CSTNode | str]:
    node = origin.node
    if isinstance(node, cst.ClassDef):
        return [node]
    dotted = origin.file.dotted(node) if isinstance(node, cst.BaseExpression) else None
    return [dotted] if dotted is not None else []
