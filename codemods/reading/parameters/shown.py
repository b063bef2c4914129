"""Numbers that a program only shows: `print(f"{count / 1e6:.1f} M")`, directly or under a name."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import named, upward
from codemods.reading.code.words import last_name, words

_SHOWS = frozenset({"print", "log", "info", "debug", "warning", "logging"})
"""Words of the functions that show what they are given."""
_KEEPS = frozenset({"sum", "int", "float", "str", "round", "len", "list", "tuple", "max", "min", "format", "prod"})
"""Functions whose result is a number of the same kind, or its text."""
_AROUND = (
    *(cst.Arg, cst.BaseComp, cst.Element, cst.DictElement, cst.Tuple, cst.List, cst.Dict),
    *(cst.FormattedString, cst.FormattedStringExpression, cst.ConcatenatedString),
)


def is_only_shown(node: cst.BaseExpression, ctx: Context, seen: frozenset[str] = frozenset()) -> bool:
    """Whether all that is made of a value is shown, and no other number but a constant goes into it."""
    for inner, outer in upward(ctx, node):
        if isinstance(outer, cst.Call) and inner is not outer.func:
            if words(last_name(outer.func)) & _SHOWS:
                return True
            if last_name(outer.func) not in _KEEPS:
                return False
        elif isinstance(outer, cst.BinaryOperation):
            other = outer.right if inner is outer.left else outer.left
            if not isinstance(other, (cst.Integer, cst.Float, cst.SimpleString)):
                return False
        elif isinstance(outer, cst.Assign) and len(outer.targets) == 1:
            return _is_name_shown(outer.targets[0].target, ctx, seen)
        elif isinstance(outer, cst.AugAssign) and isinstance(outer.operator, cst.AddAssign):
            return _is_name_shown(outer.target, ctx, seen)
        elif not isinstance(outer, _AROUND):
            return False
    return False


def _is_name_shown(target: cst.BaseExpression, ctx: Context, seen: frozenset[str]) -> bool:
    scope = ctx.scope(target)
    if not isinstance(target, cst.Name) or not isinstance(scope, cst.FunctionDef):
        return False
    if target.value in seen:
        return True
    known = seen | {target.value}
    uses = [each for each in named(ctx, scope, target.value) if not _is_bound(each, ctx)]
    return bool(uses) and all(is_only_shown(use, ctx, known) for use in uses)


def _is_bound(name: cst.Name, ctx: Context) -> bool:
    """Whether it is a target, a keyword or an attribute, and no use."""
    holder = ctx.parent(name)
    if isinstance(holder, (cst.Arg, cst.AugAssign)):
        return holder.value is not name
    if isinstance(holder, cst.Attribute):
        return holder.attr is name
    return isinstance(holder, cst.AssignTarget)
