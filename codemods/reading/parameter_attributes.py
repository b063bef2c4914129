"""Attributes that a program sets on parameters before they are sharded, and reads: `p.no_decay = True`.

FSDP1 with `use_orig_params=True` kept the objects, and what was set on them, but for parameters on the meta device, in
whose place an initialisation put new ones. Without it there were flat parameters, which had none of it. `fully_shard`
puts new parameters in the place of all (measured on torch 2.13).
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.enclosing import call_by
from codemods.reading.model_parameters import READERS, parameter_of
from codemods.reading.shapes import called_on, is_call_to
from codemods.reading.words import is_name, last_name

_TENSORS = frozenset({"weight", "bias"})
WORDS = (*READERS, "Parameter", *sorted(_TENSORS))
"""A file that sets any holds one of these."""

_OF_TENSORS = frozenset({"data", "grad", "requires_grad", "names"})
_OF_TENSORS |= {"device", "dtype", "is_leaf", "layout", "ndim", "shape"}
"""What every tensor has: rules of their own know what becomes of the first ones; the others only a mock lets set."""

_REPLACING = ("to", "to_empty", "cuda", "cpu", "half", "bfloat16", "float", "double", "type")

_MAKERS = frozenset({"torch.nn.Parameter", "torch.nn.parameter.Parameter"})


def set_and_read(ctx: Context) -> dict[str, cst.CSTNode]:
    """The attributes that a file sets on parameters, and that any file reads; each with the place where it is first
    set."""
    found: dict[str, cst.CSTNode] = {}
    for node, owner, name in _stores(ctx):
        if name not in found and name not in _OF_TENSORS and _is_parameter(owner, ctx) and _is_read(name, ctx):
            found[name] = node
    return found


def are_set(ctx: Context) -> bool:
    """Whether a file that a wrap of this one can run with sets any."""
    files = {where.path: where for word in WORDS for where in ctx.files(word)}
    return any(ctx.wrapping.runs_with(ctx.path, path) and set_and_read(where) for path, where in files.items())


def are_replaced_later(ctx: Context) -> bool:
    """Whether the program moves or casts an FSDP model: FSDP1 kept the parameters then, and FSDP2 makes new ones."""
    calls = ((where, node) for where, node in ctx.attributes(*_REPLACING) if call_by(node, where) is not None)
    return any(ModelKind.FSDP in where.kinds(node.value) for where, node in calls)


def asking(ctx: Context, name: str) -> Iterator[tuple[Context, cst.Call]]:
    """Where any file asks for what this one sets: `getattr(p, "name", False)`, `hasattr(p, "name")`."""
    return ((file, call) for file in _mentioning(ctx, name) for call in _asks(file, name))


def _asks(ctx: Context, name: str) -> Iterator[cst.Call]:
    for call in ctx.nodes(cst.Call):
        asked = call.args[1].value if is_call_to(call, "getattr", "hasattr") and len(call.args) > 1 else None
        if asked is not None and _text(asked, ctx) == name:
            yield call


def _mentioning(ctx: Context, name: str) -> Iterator[Context]:
    """The files that name an attribute, this one first: itself, or the constant that this one takes its name from."""
    files = {ctx.path: ctx}
    for word in (name, *_constants(ctx, name)):
        files |= {file.path: file for file in ctx.files(word)}
    return iter(files.values())


def _constants(ctx: Context, name: str) -> Iterator[str]:
    for call in ctx.nodes(cst.Call):
        if is_call_to(call, "setattr") and len(call.args) == 3 and _text(call.args[1].value, ctx) == name:
            yield last_name(call.args[1].value) or name


def _text(node: cst.BaseExpression, ctx: Context) -> str | None:
    """A string, as it is or by the name of a constant."""
    if isinstance(node, cst.SimpleString):
        return str(node.evaluated_value)
    found = [o.node for o in ctx.origins(node)] if isinstance(node, (cst.Name, cst.Attribute)) else []
    texts = {str(each.evaluated_value) for each in found if isinstance(each, cst.SimpleString)}
    return texts.pop() if len(texts) == len(found) == 1 else None


def _stores(ctx: Context) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression, str]]:
    """`p.name = value` and `setattr(p, "name", value)`: the statement, `p`, and the name."""
    for target in ctx.nodes(cst.AssignTarget):
        if isinstance(target.target, cst.Attribute):
            yield target, target.target.value, target.target.attr.value
    for call in ctx.nodes(cst.Call):
        if is_call_to(call, "setattr") and len(call.args) == 3:
            name = _text(call.args[1].value, ctx)
            if name is not None:
                yield call, call.args[0].value, name


def _is_parameter(node: cst.BaseExpression, ctx: Context) -> bool:
    """Whether an object is a parameter of a module that is not sharded yet, as far as that is seen."""
    if isinstance(node, cst.Attribute) and node.attr.value in _TENSORS:
        return ModelKind.FSDP not in ctx.kinds(node.value)
    if any(isinstance(o.node, cst.Call) and o.file.dotted(o.node.func) in _MAKERS for o in ctx.origins(node)):
        return True
    return isinstance(node, cst.Name) and _is_turn(node, ctx)


def _is_turn(name: cst.Name, ctx: Context) -> bool:
    """Whether it is the variable of a loop over the parameters of a module that is not sharded yet."""
    for loop in ctx.ancestors(name):
        if not isinstance(loop, cst.For):
            continue
        for call in ctx.inside(loop.iter):
            model = called_on(call, *READERS)
            if isinstance(call, cst.Call) and model is not None and is_name(parameter_of(call, loop), name.value):
                return ModelKind.FSDP not in ctx.kinds(model)
    return False


def _is_read(name: str, ctx: Context) -> bool:
    return any(_reads(file, name) for file in _mentioning(ctx, name))


def _reads(ctx: Context, name: str) -> bool:
    """`p.name` where it is not set, or its name as the argument of `getattr` or `hasattr`."""
    for node in ctx.nodes(cst.Attribute):
        if node.attr.value == name and not isinstance(ctx.parent(node), cst.AssignTarget):
            return True
    return any(_asks(ctx, name))
