"""Dataclasses that `forward` returns, in which pytree finds no tensors, as `fully_shard` before torch 2.12 looks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.class_layout import with_bases
from codemods.reading.words import last_name

_REGISTERS = frozenset({"register_dataclass", "register_pytree_node", "_register_pytree_node"})
_WITHOUT_FIELDS = frozenset({"object", "abc.ABC", "typing.Generic"})

Classes = Iterable[tuple[Context, cst.ClassDef]]


def unregistered_outputs(modules: Classes) -> list[tuple[Context, cst.ClassDef]]:
    """The dataclasses that the `forward` of these classes makes and returns, alone or in a tuple, each once.

    A class with a base that is not the program's own is left out: those of transformers and diffusers register what
    derives from them.
    """
    returned = dict.fromkeys(each for where, module in modules for each in _returned(where, module))
    return [(where, owner) for where, owner in returned if _is_unregistered(where, owner)]


def _returned(ctx: Context, module: cst.ClassDef) -> Iterator[tuple[Context, cst.ClassDef]]:
    forwards = [node for node in module.body.body if isinstance(node, cst.FunctionDef) and node.name.value == "forward"]
    for forward in forwards:
        for node in ctx.inside(forward.body):
            if isinstance(node, cst.Return) and node.value is not None and ctx.scope(node) is forward:
                elements = node.value.elements if isinstance(node.value, cst.Tuple) else ()
                for value in [each.value for each in elements] or [node.value]:
                    yield from _made_of(ctx, value)


def _made_of(ctx: Context, value: cst.BaseExpression) -> Iterator[tuple[Context, cst.ClassDef]]:
    for origin in ctx.origins(value):
        if isinstance(origin.node, cst.Call):
            for made in origin.file.origins(origin.node.func):
                if isinstance(made.node, cst.ClassDef):
                    yield made.file, made.node


def _is_unregistered(ctx: Context, owner: cst.ClassDef) -> bool:
    if not _is_dataclass(ctx, owner) or any(_is_foreign(where, each) for where, each in with_bases(ctx, owner)):
        return False
    uses = ((where, where.parent(use)) for where, use in ctx.references_to(owner))
    calls = (where.parent(use) for where, use in uses if isinstance(use, cst.Arg))
    return not any(isinstance(call, cst.Call) and last_name(call.func) in _REGISTERS for call in calls)


def _is_dataclass(ctx: Context, owner: cst.ClassDef) -> bool:
    marks = (each.decorator for each in owner.decorators)
    names = (ctx.dotted(mark.func if isinstance(mark, cst.Call) else mark) for mark in marks)
    return "dataclasses.dataclass" in names


def _is_foreign(ctx: Context, owner: cst.ClassDef) -> bool:
    """Whether one of its bases is a class that the program does not define."""
    for base in owner.bases:
        name = base.value.value if isinstance(base.value, cst.Subscript) else base.value
        if ctx.dotted(name) in _WITHOUT_FIELDS or ctx.code(name) in _WITHOUT_FIELDS:
            continue
        if not any(isinstance(origin.node, cst.ClassDef) for origin in ctx.origins(name)):
            return True
    return False
