"""Attributes that a program sets on parameters before they are sharded, and reads: `p.no_decay = True`.

FSDP1 with `use_orig_params=True` kept the objects, and what was set on them, but for parameters on the meta device, in
whose place an initialisation put new ones. Without it there were flat parameters, which had none of it. `fully_shard`
puts new parameters in the place of all (measured on torch 2.13).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard, get_args

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.code.enclosing import call_by
from codemods.reading.code.places import bound
from codemods.reading.code.shapes import called_on, is_call_to
from codemods.reading.code.words import is_name, last_name
from codemods.reading.parameters.lists import heads
from codemods.reading.parameters.of_model import READERS, Loop, parameter_of

_TENSORS = frozenset({"weight", "bias"})
WORDS = (*READERS, "Parameter", *sorted(_TENSORS))
"""A file that sets any holds one of these."""

_OF_TENSORS = frozenset({"data", "grad", "requires_grad", "names"})
_OF_TENSORS |= {"device", "dtype", "is_leaf", "layout", "ndim", "shape"}
"""What every tensor has: rules of their own know what becomes of the first ones; the others only a mock lets set."""

_REPLACING = ("to", "to_empty", "cuda", "cpu", "half", "bfloat16", "float", "double", "type")

_DEPTH = 3
"""How many names are followed that stand for a parameter."""

_MAKERS = frozenset({"torch.nn.Parameter", "torch.nn.parameter.Parameter"})


def set_and_read(ctx: Context) -> dict[str, cst.CSTNode]:
    """The attributes that a file sets on parameters, and that any file reads; each with the place where it is first
    set."""
    found: dict[str, cst.CSTNode] = {}
    for node, owner, name in _stores(ctx):
        if name in found or name in _OF_TENSORS or not (_is_parameter(owner, ctx) or _may_be_one(owner, name, ctx)):
            continue
        if _is_read(name, ctx):
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
        if asked is not None and _text(asked, ctx) == name and not _is_set_there(call, name, ctx):
            yield call


def _is_set_there(asked: cst.Call, name: str, ctx: Context) -> bool:
    """`if not hasattr(p, "mark"): p.mark = x`: what is asked first, and set anew, is not what got lost."""
    owner = asked.args[0].value
    around = _turn(owner, ctx) or ctx.scope(asked)
    return any(
        each == name and around in ctx.ancestors(node) and ctx.code(target) == ctx.code(owner)
        for node, target, each in _stores(ctx)
    )


def _turn(node: cst.BaseExpression, ctx: Context) -> Loop | None:
    """The loop whose variable a name is."""
    loops = (outer for outer in ctx.ancestors(node) if isinstance(outer, get_args(Loop)))
    return next((each for each in loops if isinstance(node, cst.Name) and _binds(each, node)), None)


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


def _is_parameter(node: cst.BaseExpression, ctx: Context, depth: int = _DEPTH) -> bool:
    """Whether an object is a parameter of a module that is not sharded yet, as far as that is seen."""
    if isinstance(node, cst.Attribute) and node.attr.value in _TENSORS:
        return ModelKind.FSDP not in ctx.kinds(node.value)
    if any(isinstance(o.node, cst.Call) and o.file.dotted(o.node.func) in _MAKERS for o in ctx.origins(node)):
        return True
    model = called_on(node, "get_parameter")
    if model is not None:
        return ModelKind.FSDP not in ctx.kinds(model)
    if not isinstance(node, cst.Name):
        return False
    turn = _turn(node, ctx)
    if turn is not None:
        return _is_turn(node, turn, ctx, depth)
    held = ctx.bound(node) or [(where, value) for where, _, value in ctx.passed_to(node, node.value)]
    return depth > 0 and any(_is_parameter(value, where, depth - 1) for where, value in held)


def _may_be_one(node: cst.BaseExpression, name: str, ctx: Context) -> bool:
    """`net.scale` of a class that is not seen, and `getattr(net, name)`, where what is set on it is asked of
    parameters: it is one of them."""
    owner = node.value if isinstance(node, cst.Attribute) else None
    if is_call_to(node, "getattr") and len(node.args) == 2:
        owner = node.args[0].value
    if owner is None or ModelKind.FSDP in ctx.kinds(owner):
        return False
    return any(_is_one_of_all(call.args[0].value, file) for file, call in asking(ctx, name))


def _is_one_of_all(node: cst.BaseExpression, ctx: Context) -> bool:
    if not isinstance(node, cst.Name):
        return False
    loops = [outer for outer in ctx.ancestors(node) if isinstance(outer, get_args(Loop))]
    read = [(loop, each) for loop in loops for head in heads(loop) for each in (head.iter, *ctx.inside(head.iter))]
    calls = [(loop, each) for loop, each in read if isinstance(each, cst.Call) or _is_list_of_all(each, ctx)]
    return any(
        (isinstance(each, cst.Name) or called_on(each, *READERS) is not None)
        and is_name(parameter_of(each, loop), node.value)
        for loop, each in calls
    )


def _is_list_of_all(node: cst.CSTNode, ctx: Context) -> TypeGuard[cst.Name]:
    """`params`, of `params = list(model.parameters())`."""
    held = ctx.bound(node) or () if isinstance(node, cst.Name) else ()
    return any(called_on(each, *READERS) is not None for where, value in held for each in (value, *where.inside(value)))


def _binds(loop: Loop, name: cst.Name) -> bool:
    return any(name.value in bound(head.target) for head in heads(loop))


def _is_turn(name: cst.Name, loop: Loop, ctx: Context, depth: int) -> bool:
    """Whether a loop over the parameters of a module that is not sharded yet, or over some of them, binds a name."""
    for over in (head.iter for head in heads(loop)):
        if isinstance(over, (cst.List, cst.Tuple)):
            return any(_is_parameter(each.value, ctx, depth - 1) for each in over.elements) if depth else False
        for call in (over, *ctx.inside(over)):
            model = called_on(call, *READERS)
            if isinstance(call, cst.Call) and model is not None and is_name(parameter_of(call, loop), name.value):
                return ModelKind.FSDP not in ctx.kinds(model)
        if isinstance(over, cst.Name):
            held = [(where, node) for where, value in ctx.bound(over) or () for node in (value, *where.inside(value))]
            models = [(where, model) for where, node in held if (model := called_on(node, *READERS)) is not None]
            return any(ModelKind.FSDP not in where.kinds(model) for where, model in models)
    return False


def _is_read(name: str, ctx: Context) -> bool:
    return any(_reads(file, name) for file in _mentioning(ctx, name))


def _reads(ctx: Context, name: str) -> bool:
    """`p.name` where it is not set, or its name as the argument of `getattr` or `hasattr`."""
    for node in ctx.nodes(cst.Attribute):
        if node.attr.value == name and not isinstance(ctx.parent(node), cst.AssignTarget):
            return True
    return any(_asks(ctx, name))
