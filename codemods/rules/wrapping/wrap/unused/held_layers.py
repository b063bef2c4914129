"""The layers that a model's class holds, and its methods that run them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from codemods.api import Context
from codemods.reading.code.once import once
from codemods.reading.code.places import place
from codemods.reading.code.shapes import is_call_to, parameter_names
from codemods.reading.code.words import is_name
from codemods.reading.models.class_layout import with_bases
from codemods.tables.layers import BARE

from .given_values import given_names, made_of, names_of_values

_MADE = 3
"""How many classes and functions, each called by the one before, are read for a layer."""


@dataclass(frozen=True)
class Method:
    """A method of a model's class; each layer of the class asks for the same of it."""

    ctx: Context
    node: cst.FunctionDef

    @cached_property
    def uses(self) -> Mapping[str, Sequence[cst.Attribute]]:
        """Its attributes, by what they read: `self.head`; not where layers are counted alone."""
        found: dict[str, list[cst.Attribute]] = {}
        for node in self.ctx.inside(self.node.body):
            read = place(node) if isinstance(node, cst.Attribute) else None
            if read is not None and isinstance(node, cst.Attribute) and not _is_counted(node, self.ctx):
                found.setdefault(read, []).append(node)
        return found

    @cached_property
    def given(self) -> set[str]:
        return given_names(self.node, self.ctx)

    @cached_property
    def values(self) -> set[str]:
        """What holds values out of a tensor, or is computed of some: `counts = top.bincount().tolist()`."""
        return names_of_values(self.node, self.ctx)

    @cached_property
    def thrown(self) -> set[str]:
        """The same, and what is drawn at random or computed of that."""
        return made_of(self.node, self.values, self.ctx)

    @cached_property
    def own_by_name(self) -> Sequence[cst.BaseExpression]:
        """`self` of `getattr(self, f"expert_{i}")`."""
        calls = (node for node in self.ctx.inside(self.node.body) if is_call_to(node, "getattr"))
        return [call.args[0].value for call in calls if call.args and is_name(call.args[0].value, "self")]

    def uses_alike(self, use: cst.BaseExpression) -> Sequence[cst.BaseExpression]:
        """The uses of what this is one of."""
        return self.own_by_name if isinstance(use, cst.Name) else self.uses_of(place(use) or "")

    def uses_of(self, layer: str) -> Sequence[cst.Attribute]:
        return self.uses.get(layer, ())


def _is_counted(layers: cst.Attribute, ctx: Context) -> bool:
    """`len(self.layers)`, and `for _ in self.layers`."""
    holder = ctx.parent(layers)
    if isinstance(holder, cst.CompFor):
        return holder.iter is layers and is_name(holder.target, "_")
    return isinstance(holder, cst.Arg) and is_call_to(ctx.parent(holder), "len")


@once
def layers_and_methods(ctx: Context, owner: cst.ClassDef) -> tuple[list[str], dict[str, Method]]:
    """What a class has of them, with what its bases have."""
    layers: list[str] = []
    methods: dict[str, Method] = {}
    for where, each in with_bases(ctx, owner):
        for node in each.body.body:
            if isinstance(node, cst.FunctionDef):
                methods.setdefault(node.name.value, Method(where, node))
                layers += _layers_of(where, node, each) if node.name.value == "__init__" else ()
    methods.pop("__init__", None)
    return layers, methods


def held_modules(ctx: Context, owner: cst.ClassDef) -> set[str]:
    """The attributes that a class reads and that may hold parameters: `fc`, and `fn` of `self.fn = fn` that is called.

    What nothing stores may have been registered, and what a library makes may be a layer.
    """
    _, methods = layers_and_methods(ctx, owner)
    plain = {"self.training"} | {
        stored
        for where, each in with_bases(ctx, owner)
        for node in where.inside(each.body)
        if isinstance(node, cst.Assign)
        for stored, made in _pairs(node.targets[0].target, node.value)
        if stored is not None and _is_plain(made, where)
    }
    reads = ((method.ctx, node) for method in methods.values() for nodes in method.uses.values() for node in nodes)
    return {
        node.attr.value
        for where, node in reads
        if is_name(node.value, "self") and node.attr.value not in methods
        if place(node) not in plain or _is_called(node, where) or _is_gone_over(node, where)
    }


def _is_plain(made: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a value is no layer, as far as it is seen by itself."""
    while isinstance(made, cst.Call) and isinstance(made.func, cst.Attribute) and isinstance(made.func.value, cst.Call):
        made = made.func.value  # `torch.Generator().manual_seed(5)`
    if not isinstance(made, cst.Call):
        return True
    if has_parameters(made, ctx):
        return False
    dotted = ctx.dotted(made.func)
    if dotted is not None:
        return dotted.startswith(("torch.", "builtins.", "math.", "random."))
    return any(isinstance(origin.node, (cst.ClassDef, cst.FunctionDef)) for origin in ctx.origins(made.func))


def _is_called(node: cst.CSTNode, ctx: Context) -> bool:
    return getattr(ctx.parent(node), "func", None) is node


def _is_gone_over(layers: cst.CSTNode, ctx: Context) -> bool:
    """`for f in self.layers`, and `enumerate(self.layers)`."""
    holder = ctx.parent(layers)
    is_counted = isinstance(holder, cst.Arg) and is_call_to(ctx.parent(holder), "enumerate", "zip")
    return is_counted or getattr(holder, "iter", None) is layers


def _is_item(layers: cst.CSTNode, ctx: Context) -> bool:
    return isinstance(holder := ctx.parent(layers), cst.Subscript) and holder.value is layers


def _layers_of(ctx: Context, init: cst.FunctionDef, owner: cst.ClassDef) -> Iterator[str]:
    """`self.head` of `self.head = nn.Linear(2, 2)` and of `self.head = Head()`; not of what has no parameters."""
    for node in ctx.inside(init.body):
        if isinstance(node, cst.Assign):
            for layer, made in _pairs(node.targets[0].target, node.value):
                if layer is not None and (has_parameters(made, ctx) or _is_given(layer, made, init, owner, ctx)):
                    yield layer


def _is_given(layer: str, made: cst.BaseExpression, init: cst.FunctionDef, owner: cst.ClassDef, ctx: Context) -> bool:
    """`self.fn = fn`, which the class calls or goes over, and which the program makes: `Residual(nn.Linear(4, 4))`."""
    if not isinstance(made, cst.Name) or made.value not in parameter_names(init):
        return False
    uses = (node for node in ctx.inside(owner.body) if isinstance(node, cst.Attribute) and place(node) == layer)
    is_run = any(_is_called(use, ctx) or _is_gone_over(use, ctx) or _is_item(use, ctx) for use in uses)
    return is_run and any(has_parameters(each.node, each.file) for each in ctx.origins(made))


def _pairs(target: cst.BaseExpression, value: cst.BaseExpression) -> Iterator[tuple[str | None, cst.BaseExpression]]:
    """Both of `self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)`."""
    if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
        for each, made in zip(target.elements, value.elements, strict=False):
            yield place(each.value), made.value
    else:
        yield place(target), value


def has_parameters(made: cst.CSTNode | None, ctx: Context, depth: int = _MADE) -> bool:
    """Whether torch makes a layer of its parameters, or a class or function of the program does that makes some."""
    if not isinstance(made, cst.Call):
        return False
    dotted = ctx.dotted(made.func)
    if dotted is not None:
        return dotted.startswith("torch.nn.") and not BARE.search(dotted.rsplit(".", 1)[-1])
    makers = [(o.file, o.node) for o in ctx.origins(made.func) if isinstance(o.node, (cst.ClassDef, cst.FunctionDef))]
    return depth > 0 and any(
        has_parameters(call, where, depth - 1)
        for where, maker in makers
        for call in where.inside(maker.body)
        if isinstance(call, cst.Call)
    )
