"""The optimizer inside of an object of the program's own: `ScheduledOptim(AdamW(…))` steps the one in `.optimizer`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import is_self
from codemods.reading.optimizers.makers import is_optimizer

_PLAIN_BASES = frozenset({"object", "abc.ABC", "typing.Protocol"})
_DEPTH = 3
"""How many classes, each a base of the one before, are looked through."""


def inner_optimizer(ctx: Context, call: cst.Call) -> str | None:
    """`.optimizer` of such an object; nothing of what is an optimizer itself, and None where it is not seen."""
    classes = [(o.file, o.node) for o in ctx.origins(call.func) if isinstance(o.node, cst.ClassDef)]
    if not classes or any(_has_groups(where, owner, _DEPTH) for where, owner in classes):
        return ""
    kept = {name for where, owner in classes for name in _kept(where, owner)}
    return f".{kept.pop()}" if len(kept) == 1 else None


def _has_groups(ctx: Context, owner: cst.ClassDef, depth: int) -> bool:
    """Whether its objects have parameter groups, as far as that is not seen too."""
    own = {node.name.value for node in owner.body.body if isinstance(node, cst.FunctionDef)}
    own |= {name for name, _ in _stores(ctx, owner)}
    return bool(own & {"param_groups", "__getattr__"}) or any(
        _may_have_groups(ctx, base, depth) for base in owner.bases
    )


def _may_have_groups(ctx: Context, base: cst.Arg, depth: int) -> bool:
    known = [(o.file, o.node) for o in ctx.origins(base.value) if isinstance(o.node, cst.ClassDef)]
    if known and depth:
        return any(_has_groups(where, owner, depth - 1) for where, owner in known)
    return ctx.code(base.value) not in _PLAIN_BASES and ctx.dotted(base.value) not in _PLAIN_BASES


def _kept(ctx: Context, owner: cst.ClassDef) -> Iterator[str]:
    for name, value in _stores(ctx, owner):
        made = [(o.file, o.node) for o in ctx.origins(value) if isinstance(o.node, cst.Call)]
        if any(is_optimizer(where, call) for where, call in made):
            yield name


def _stores(ctx: Context, owner: cst.ClassDef) -> Iterator[tuple[str, cst.BaseExpression]]:
    """What the methods put into `self`."""
    for node in (each for each in ctx.inside(owner) if isinstance(each, cst.Assign)):
        for each in node.targets:
            if isinstance(each.target, cst.Attribute) and is_self(each.target.value, ctx):
                yield each.target.attr.value, node.value
