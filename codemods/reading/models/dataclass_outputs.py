"""Outputs in which pytree finds no tensors, as `fully_shard` before torch 2.12 looks: dataclasses, classes of dicts.

`class Output(dict)` is a leaf as a dataclass is (torch 2.8): of dicts, pytree knows Python's own types alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.words import last_name
from codemods.reading.models.class_layout import with_bases

_REGISTERS = frozenset({"register_dataclass", "register_pytree_node", "_register_pytree_node"})
_DICTS = frozenset({"dict", "collections.OrderedDict", "typing.Dict", "typing.OrderedDict"})
_KNOWN = _DICTS | {"object", "abc.ABC", "typing.Generic"}

Classes = Iterable[tuple[Context, cst.ClassDef]]


def unregistered_outputs(modules: Classes) -> list[tuple[Context, cst.ClassDef]]:
    """Dataclasses and classes of dicts that the `forward` of these makes and returns, alone or in a tuple, each once.

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


def function_that_registers(ctx: Context, owner: cst.ClassDef) -> str:
    """Of torch: pytree looks into the class then."""
    return "export.register_dataclass" if _is_dataclass(ctx, owner) else "utils._pytree.register_pytree_node"


def registered_as(ctx: Context, owner: cst.ClassDef) -> list[str] | None:
    """The arguments of that function; None for a dict that is not made of its items."""
    name = owner.name.value
    if _is_dataclass(ctx, owner):
        return [name]
    methods = {method for _, each in with_bases(ctx, owner) for method in _methods(each)}
    if not methods.isdisjoint({"__init__", "__new__"}):
        return None
    return [name, "lambda out: (list(out.values()), list(out))", f"lambda values, keys: {name}(zip(keys, values))"]


def _methods(owner: cst.ClassDef) -> Iterator[str]:
    return (node.name.value for node in owner.body.body if isinstance(node, cst.FunctionDef))


def _is_unregistered(ctx: Context, owner: cst.ClassDef) -> bool:
    classes = list(with_bases(ctx, owner))
    if any(_is_foreign(*each) or _registers_itself(*each) for each in classes):
        return False
    if not (_is_dataclass(ctx, owner) or any(_is_dict(*each) for each in classes)):
        return False
    uses = ((where, where.parent(use)) for where, use in ctx.references_to(owner))
    calls = (where.parent(use) for where, use in uses if isinstance(use, cst.Arg))
    return not any(_is_registering(call) for call in calls)


def _registers_itself(ctx: Context, owner: cst.ClassDef) -> bool:
    """In `__init_subclass__`, as copies of transformers' ModelOutput do."""
    return "__init_subclass__" in _methods(owner) and any(map(_is_registering, ctx.inside(owner.body)))


def _is_registering(node: cst.CSTNode | None) -> bool:
    return isinstance(node, cst.Call) and last_name(node.func) in _REGISTERS


def _is_dataclass(ctx: Context, owner: cst.ClassDef) -> bool:
    marks = (each.decorator for each in owner.decorators)
    names = (ctx.dotted(mark.func if isinstance(mark, cst.Call) else mark) for mark in marks)
    return "dataclasses.dataclass" in names


def _is_dict(ctx: Context, owner: cst.ClassDef) -> bool:
    return any(_is_named(ctx, base.value, _DICTS) for base in owner.bases)


def _is_named(ctx: Context, base: cst.BaseExpression, names: frozenset[str]) -> bool:
    return ctx.dotted(_plain(base)) in names or ctx.code(_plain(base)) in names


def _plain(base: cst.BaseExpression) -> cst.BaseExpression:
    """`Generic` of `Generic[T]`."""
    return base.value if isinstance(base, cst.Subscript) else base


def _is_foreign(ctx: Context, owner: cst.ClassDef) -> bool:
    """Whether one of its bases is a class that the program does not define."""
    return any(
        not _is_named(ctx, base.value, _KNOWN)
        and not any(isinstance(origin.node, cst.ClassDef) for origin in ctx.origins(_plain(base.value)))
        for base in owner.bases
    )
