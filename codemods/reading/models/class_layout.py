"""Classes of models whose objects `fully_shard` cannot give a class of their own.

The layout of an object follows from the first base. Where that is `ABC`, or comes from it, the class that `fully_shard`
makes has another layout, and Python refuses to exchange them.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context, Edit
from codemods.reading.wraps.manual import argument_name
from codemods.reading.wraps.wrapped import wrapped_module

MOVABLE = frozenset({"abc.ABC", "typing.Generic"})
"""Bases without methods of their own: where they stand among the bases makes no other difference."""
_EMPTY = MOVABLE | {"typing.Protocol"}
_BASES = 8
"""How many classes, each the base of the one before, are looked at."""


def is_refused(ctx: Context, node: cst.ClassDef) -> bool:
    """Whether the class is a module, and its first base is one that makes another layout."""
    bases = [base.value for base in node.bases]
    return len(bases) > 1 and _is_empty(ctx, bases[0]) and any(_is_module(ctx, base) for base in bases[1:])


def behind_the_module(ctx: Context, node: cst.ClassDef) -> Edit | None:
    """The bases with those that can move at the end; None where that is not seen to be the same."""
    bases = [base.value for base in node.bases]
    start, end = ctx.span(bases[0])[0], ctx.span(bases[-1])[1]
    first = [base for base in bases if _named(ctx, base) in MOVABLE]
    rest = [base for base in bases if base not in first]
    if bases[0] not in first or _is_empty(ctx, rest[0]) or "\n" in ctx.text[start:end]:
        return None
    return Edit(start, end, ", ".join(ctx.quote(base) for base in (*rest, *first)))


def sharded_classes(ctx: Context, call: cst.Call) -> Iterator[tuple[Context, cst.ClassDef]]:
    """The program's classes that a constructor call is seen to shard, by its model or its policy, and their bases."""
    yield from model_classes(ctx, call)
    for argument in call.args:
        if argument_name(argument) == "auto_wrap_policy":
            policies = [(o.file, o.node) for o in ctx.origins(argument.value) if o.node is not None]
            inner = [(where, node) for where, policy in policies for node in where.inside(policy)]
            for where, node in inner:
                if isinstance(node, (cst.Name, cst.Attribute)):
                    yield from _classes(where, node)


def model_classes(ctx: Context, call: cst.Call) -> Iterator[tuple[Context, cst.ClassDef]]:
    """The program's classes that the model of a constructor call is seen to be of, and their bases."""
    module = wrapped_module(call)
    for origin in ctx.origins(module) if module is not None else ():
        if isinstance(origin.node, cst.Call):
            yield from _classes(origin.file, origin.node.func)


def _classes(ctx: Context, node: cst.BaseExpression) -> Iterator[tuple[Context, cst.ClassDef]]:
    for origin in ctx.origins(node):
        if isinstance(origin.node, cst.ClassDef):
            yield from with_bases(origin.file, origin.node)


def inits(ctx: Context, call: cst.Call) -> Iterator[tuple[Context, cst.FunctionDef]]:
    """The `__init__` of the program's own class that a call makes an object of."""
    for origin in ctx.origins(call.func):
        if isinstance(origin.node, cst.ClassDef):
            methods = (each for each in origin.node.body.body if isinstance(each, cst.FunctionDef))
            yield from ((origin.file, each) for each in methods if each.name.value == "__init__")


def with_bases(ctx: Context, node: cst.ClassDef, depth: int = _BASES) -> Iterator[tuple[Context, cst.ClassDef]]:
    """A class, and the bases that the program has of it."""
    yield ctx, node
    for base in node.bases if depth else ():
        for origin in ctx.origins(base.value):
            if isinstance(origin.node, cst.ClassDef):
                yield from with_bases(origin.file, origin.node, depth - 1)


def _is_empty(ctx: Context, base: cst.BaseExpression) -> bool:
    if _named(ctx, base) in _EMPTY:
        return True
    return any(
        isinstance(origin.node, cst.ClassDef)
        and bool(origin.node.bases)
        and not is_refused(origin.file, origin.node)
        and _named(origin.file, origin.node.bases[0].value) in _EMPTY
        for origin in ctx.origins(base)
    )


def _is_module(ctx: Context, base: cst.BaseExpression) -> bool:
    if (_named(ctx, base) or "").startswith("torch.nn."):
        return True
    classes = [(o.file, o.node) for o in ctx.origins(base) if isinstance(o.node, cst.ClassDef)]
    return any(_named(where, b.value) == "torch.nn.Module" for where, node in classes for b in node.bases)


def _named(ctx: Context, base: cst.BaseExpression) -> str | None:
    """`typing.Generic` for `Generic[T]` too."""
    return ctx.dotted(base.value if isinstance(base, cst.Subscript) else base)
