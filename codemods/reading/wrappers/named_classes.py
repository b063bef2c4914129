"""`type(model).__name__ in ("FullyShardedDataParallel", "DistributedDataParallel")`: classes told by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context

_DISPLAYS = (cst.Tuple, cst.List, cst.Set)


@dataclass(frozen=True)
class Named:
    """A test of the name of an object's class."""

    name: cst.BaseExpression
    """What gives the name: `type(x).__name__`, or a variable that holds it."""
    asked: cst.BaseExpression
    """`x`."""
    classes: Sequence[cst.SimpleString]
    is_negated: bool


def named_classes(ctx: Context, test: cst.CSTNode) -> Named | None:
    """What a comparison asks for; None where it is another one, or not all of the names are seen."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return None
    operator, compared = test.comparisons[0].operator, test.comparisons[0].comparator
    asked = instance_named(named_by(ctx, test.left))
    if isinstance(operator, (cst.Equal, cst.NotEqual)):
        elements = [compared]
    elif isinstance(operator, (cst.In, cst.NotIn)) and isinstance(compared, _DISPLAYS):
        elements = [element.value for element in compared.elements]
    else:
        return None
    classes = [element for element in elements if isinstance(element, cst.SimpleString)]
    if asked is None or not classes or len(classes) != len(elements):
        return None
    return Named(test.left, asked, classes, isinstance(operator, (cst.NotEqual, cst.NotIn)))


def named_by(ctx: Context, name: cst.BaseExpression) -> cst.BaseExpression:
    """`type(x).__name__` for a variable that holds it, while `x` is what it was; anything else as it stands."""
    bound = ctx.bound(name) if isinstance(name, cst.Name) else None
    where, value = bound[0] if bound is not None and len(bound) == 1 else (ctx, name)
    is_held = where.path == ctx.path and ctx.scope(value) is ctx.scope(name) and ctx.same_meaning(value, name)
    return value if is_held and instance_named(value) is not None else name


def instance_named(name: cst.BaseExpression) -> cst.BaseExpression | None:
    """`x` of `type(x).__name__` and of `x.__class__.__name__`."""
    return instance_of(name.value) if isinstance(name, cst.Attribute) and name.attr.value == "__name__" else None


def instance_of(kind: cst.BaseExpression) -> cst.BaseExpression | None:
    """`x` of `type(x)` and of `x.__class__`."""
    value = None
    if isinstance(kind, cst.Attribute) and kind.attr.value == "__class__":
        value = kind.value
    elif isinstance(kind, cst.Call) and isinstance(kind.func, cst.Name) and kind.func.value == "type":
        value = kind.args[0].value if len(kind.args) == 1 else None
    return value if isinstance(value, (cst.Name, cst.Attribute)) else None
