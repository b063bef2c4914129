"""Classes of models whose objects `fully_shard` cannot give a class of their own.

The layout of an object follows from the first base. Where that is `ABC`, or comes from it, the class that `fully_shard`
makes has another layout, and Python refuses to exchange them.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.reading.wrapped import wrapped_module
from codemods.vocabulary import Edit, File

MOVABLE = frozenset({"abc.ABC", "typing.Generic"})
"""Bases without methods of their own: where they stand among the bases makes no other difference."""
_EMPTY = MOVABLE | {"typing.Protocol"}
_BASES = 8
"""How many classes, each the base of the one before, are looked at."""


def is_refused(file: File, node: cst.ClassDef) -> bool:
    """Whether the class is a module, and its first base is one that makes another layout."""
    bases = [base.value for base in node.bases]
    return len(bases) > 1 and _is_empty(file, bases[0]) and any(_is_module(file, base) for base in bases[1:])


def behind_the_module(file: File, node: cst.ClassDef) -> Edit | None:
    """The bases with those that can move at the end; None where that is not seen to be the same."""
    bases = [base.value for base in node.bases]
    start, end = file.span(bases[0])[0], file.span(bases[-1])[1]
    first = [base for base in bases if _named(file, base) in MOVABLE]
    rest = [base for base in bases if base not in first]
    if bases[0] not in first or _is_empty(file, rest[0]) or "\n" in file.text[start:end]:
        return None
    return Edit(start, end, ", ".join(file.code(base) for base in (*rest, *first)))


def sharded_classes(file: File, call: cst.Call) -> Iterator[tuple[File, cst.ClassDef]]:
    """The program's classes that a constructor call is seen to shard, by its model or its policy, and their bases."""
    yield from model_classes(file, call)
    for argument in call.args:
        if argument.keyword is not None and argument.keyword.value == "auto_wrap_policy":
            policies = [(o.file, o.node) for o in file.origins(argument.value) if o.node is not None]
            inner = [(where, node) for where, policy in policies for node in where.inside(policy)]
            for where, node in inner:
                if isinstance(node, (cst.Name, cst.Attribute)):
                    yield from _classes(where, node)


def model_classes(file: File, call: cst.Call) -> Iterator[tuple[File, cst.ClassDef]]:
    """The program's classes that the model of a constructor call is seen to be of, and their bases."""
    module = wrapped_module(call)
    for origin in file.origins(module) if module is not None else ():
        if isinstance(origin.node, cst.Call):
            yield from _classes(origin.file, origin.node.func)


def _classes(file: File, node: cst.BaseExpression) -> Iterator[tuple[File, cst.ClassDef]]:
    for origin in file.origins(node):
        if isinstance(origin.node, cst.ClassDef):
            yield from _with_bases(origin.file, origin.node, _BASES)


def _with_bases(file: File, node: cst.ClassDef, depth: int) -> Iterator[tuple[File, cst.ClassDef]]:
    yield file, node
    for base in node.bases if depth else ():
        for origin in file.origins(base.value):
            if isinstance(origin.node, cst.ClassDef):
                yield from _with_bases(origin.file, origin.node, depth - 1)


def _is_empty(file: File, base: cst.BaseExpression) -> bool:
    if _named(file, base) in _EMPTY:
        return True
    return any(
        isinstance(origin.node, cst.ClassDef)
        and bool(origin.node.bases)
        and not is_refused(origin.file, origin.node)
        and _named(origin.file, origin.node.bases[0].value) in _EMPTY
        for origin in file.origins(base)
    )


def _is_module(file: File, base: cst.BaseExpression) -> bool:
    if (_named(file, base) or "").startswith("torch.nn."):
        return True
    classes = [(o.file, o.node) for o in file.origins(base) if isinstance(o.node, cst.ClassDef)]
    return any(_named(where, b.value) == "torch.nn.Module" for where, node in classes for b in node.bases)


def _named(file: File, base: cst.BaseExpression) -> str | None:
    """`typing.Generic` for `Generic[T]` too."""
    return file.dotted(base.value if isinstance(base, cst.Subscript) else base)
