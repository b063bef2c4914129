"""Parts of models that are wrapped around them: `model.encoder`, `model.blocks[0]`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.code.enclosing import enclosing, is_self
from codemods.reading.code.once import once
from codemods.reading.code.places import bound
from codemods.reading.code.words import last_name, words
from codemods.reading.models.just_made import is_just_made
from codemods.reading.models.plain_objects import may_be_plain
from codemods.reading.parameters.lists import heads
from codemods.reading.values.defaults import parameter_named

NO_MODELS = frozenset({"optim", "optimizer", "optimizers", "opt", "sched", "scheduler", "schedulers"})
NO_MODELS |= {"scaler", "loader", "loaders", "dataloader", "sampler"}
"""What is named like this is no model, whatever it is."""

_WRAPPED = frozenset({"module", "_fsdp_wrapped_module", "_orig_mod"})
"""What wrappers call the module inside of them."""

_DEPTH = 3
"""How many names are followed that stand for a part: `head = model.head`."""

UNITS_ONLY = "FSDP1 gathered what of a part lies in units, and what the root shards itself it left out, or flat"
"""What differs in the state dict of a part. Measured: {} or flat pieces of the root's own, with and without the context
(torch 2.13, 2 ranks, without and with use_orig_params)."""


def unwrapped(model: cst.BaseExpression) -> cst.BaseExpression:
    """`model` of `model.module`."""
    while isinstance(model, cst.Attribute) and model.attr.value in _WRAPPED:
        model = model.value
    return model


def compiled_from(model: cst.BaseExpression, ctx: Context) -> cst.BaseExpression:
    """`model` of `compiled = torch.compile(model)`: the same module, by another name."""
    made = (ctx.bound(model) or ()) if isinstance(model, cst.Name) else ()
    call = made[0][1] if len(made) == 1 else None
    is_compiled = isinstance(call, cst.Call) and bool(call.args) and ctx.dotted(call.func) == "torch.compile"
    return call.args[0].value if isinstance(call, cst.Call) and is_compiled else model


def model_around(part: cst.BaseExpression, ctx: Context) -> cst.BaseExpression | None:
    """The FSDP model whose part an expression is. None for a model itself, and for what is no module of it."""
    part = unwrapped(part)
    if words(last_name(part)) & NO_MODELS or ModelKind.FSDP in ctx.kinds(part):
        return None
    around = part
    while isinstance(around, (cst.Attribute, cst.Subscript)):
        around = around.value
        held = ctx.kinds(around)
        if ModelKind.FSDP in held:
            # Of an object that nobody knows, any attribute of the name can be meant: `model.model.blocks` in a test.
            return around if ModelKind.UNKNOWN not in held and not may_be_plain(ctx, part) else None
        if isinstance(around, cst.Attribute) and around.attr.value in _WRAPPED:
            return None  # the module of another wrapper: `model.module.encoder` behind `hasattr(model, "module")`
    return None


def is_named_in(part: cst.BaseExpression, model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a part is one of this model by its text: of a model that comes from where nobody sees it, too."""
    if words(last_name(unwrapped(part))) & NO_MODELS or may_be_plain(ctx, part):
        return False
    whole, around = ctx.code(unwrapped(model)), part
    while isinstance(around, (cst.Attribute, cst.Subscript)):
        around = around.value
        if ctx.code(unwrapped(around)) == whole:
            return True
    return False


@once
def wrapped_around(
    module: cst.BaseExpression, ctx: Context, depth: int = _DEPTH
) -> tuple[Context, cst.BaseExpression] | None:
    """The FSDP model that a module can be, or be a part of: its parameters are shards.

    A part goes by other names too: `head = model.head`, `for block in model.blocks`, `build(model.head)`.
    """
    if ModelKind.FSDP in ctx.kinds(module):
        return None if is_just_made(ctx, module) else (ctx, module)
    if words(last_name(module)) & NO_MODELS:
        return None
    found = _wrapped_owner(module, ctx, depth)
    return None if found is None or may_be_plain(ctx, module) else found


def is_given_plain(ctx: Context, model: cst.BaseExpression) -> bool:
    """Whether a parameter is given, by each call that is seen, what is plain there still: `cast(self.model)`.

    That tells of what the function does itself, and of nothing that it keeps, or that runs later.
    """
    function = ctx.scope(model)
    if not isinstance(model, cst.Name) or not isinstance(function, cst.FunctionDef):
        return False
    param = parameter_named(model, function)
    if param is None or model not in ctx.uses(param) or ModelKind.FSDP not in ctx.kinds(model):
        return False
    if any(isinstance(each, cst.Yield) or _binds(each, model.value) for each in ctx.inside(function)):
        return False
    given = [(where, value) for where, _, value in ctx.passed_to(model, model.value)]
    return bool(given) and all(wrapped_around(value, where) is None for where, value in given)


def _binds(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Name) and node.target.value == name


def _wrapped_owner(module: cst.BaseExpression, ctx: Context, depth: int) -> tuple[Context, cst.BaseExpression] | None:
    around = module
    while (outer := _owner(around)) is not None:
        around = outer
        if ModelKind.FSDP in ctx.kinds(around):
            return None if is_just_made(ctx, around) else (ctx, around)
    for where, other in _other_names(around, module, ctx) if depth else ():
        found = wrapped_around(other, where, depth - 1) if other is not module else None
        if found is not None:
            return found
    return None


def _owner(part: cst.BaseExpression) -> cst.BaseExpression | None:
    """`model` of `model.head`, `model[0]`, `model.get_input_embeddings()` and `model.get_submodule("head")`."""
    if isinstance(part, cst.Call):
        is_part = isinstance(part.func, cst.Attribute) and (not part.args or part.func.attr.value == "get_submodule")
        return part.func.value if is_part and isinstance(part.func, cst.Attribute) else None
    return part.value if isinstance(part, (cst.Attribute, cst.Subscript)) else None


def _other_names(
    first: cst.BaseExpression, part: cst.BaseExpression, ctx: Context
) -> Iterator[tuple[Context, cst.BaseExpression]]:
    """What the name at the start of a part stands for, and what `self.head` was set to."""
    if not isinstance(first, cst.Name):
        return
    if isinstance(part, cst.Attribute) and is_self(part.value, ctx):
        owner = enclosing(ctx, part, cst.ClassDef)
        for assigned in ctx.nodes(cst.Assign):
            targets = [ctx.code(target.target) for target in assigned.targets]
            is_set = ctx.code(part) in targets and enclosing(ctx, assigned, cst.ClassDef) is owner
            if is_set and _owner(assigned.value) is not None:
                yield ctx, assigned.value  # what it holds itself is known where it is read
        return
    if is_self(first, ctx):
        return  # its calls pass nothing for it
    yield from ctx.bound(first) or ()
    yield from ((where, given) for where, _, given in ctx.passed_to(first, first.value))
    for loop in ctx.ancestors(first):
        for head in heads(loop) if isinstance(loop, (cst.For, cst.BaseComp)) else ():
            if first.value in bound(head.target):
                yield from ((ctx, over) for over in _gone_over(head.iter))


def _gone_over(over: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """`model.blocks` of `enumerate(model.blocks)`, `model` of `model.children()`, and both of `[model.a, model.b]`."""
    if isinstance(over, (cst.List, cst.Tuple)):
        yield from (element.value for element in over.elements)
    elif isinstance(over, cst.Call) and isinstance(over.func, cst.Name):
        for argument in over.args:
            yield from _gone_over(argument.value)
    elif isinstance(over, (cst.Attribute, cst.Name, cst.Subscript, cst.Call)):
        yield over
