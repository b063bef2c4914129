"""Objects of the program's own classes that are no modules: `Snapshot({"model": model, "optim": Adapter(model)})`."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from codemods.api import Context, Fix, Import
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import enclosing, ifs_around, is_self
from codemods.reading.code.shapes import class_test
from codemods.reading.edits.call_layout import either, quoted_argument
from codemods.reading.values.defaults import parameter_named
from codemods.tables.names import WRAPPER

_NO_MODULES = frozenset({"abc.ABC", "object", "typing.Generic", "typing.Protocol", "typing_extensions.Protocol"})
_LIBRARIES = ("torch.optim.lr_scheduler.", "torch.utils.data.")
"""Schedulers, samplers and data sets, which are no modules either."""
_OF_TORCH = ("torch.amp.", "torch.cuda.amp.", "torch.optim.", "torch.utils.data.")
"""What makes no modules: optimizers and scalers, besides those."""
_MODULE = "torch.nn.Module"
_DEPTH = 5


def is_plain_self(ctx: Context, node: cst.BaseExpression) -> bool:
    """`self` of a class that is no module, which nobody can wrap."""
    owner = enclosing(ctx, node, cst.ClassDef) if is_self(node, ctx) else None
    return owner is not None and is_plain_class(ctx, owner)


def may_be_plain(ctx: Context, node: cst.BaseExpression) -> bool:
    """Whether an expression can be such an object, beside a model."""
    if is_asked_for(ctx, node):
        return False
    classes = (made for file, call in _made(ctx, node) for made in file.origins(call.func))
    return any(isinstance(made.node, cst.ClassDef) and is_plain_class(made.file, made.node) for made in classes)


def may_be_of_torch(ctx: Context, node: cst.BaseExpression) -> bool:
    """The same of torch's optimizers, scalers and the like, and of what inherits from one."""
    if is_asked_for(ctx, node):
        return False
    calls = _made(ctx, node)
    if any(_is_of_torch(file, call.func) for file, call in calls):
        return True
    classes = ((made.file, made.node) for file, call in calls for made in file.origins(call.func))
    return any(
        _is_of_torch(file, base.value)
        for file, owner in classes
        if isinstance(owner, cst.ClassDef)
        for base in owner.bases
    )


def _made(ctx: Context, node: cst.BaseExpression) -> list[tuple[Context, cst.Call]]:
    return [(origin.file, origin.node) for origin in ctx.origins(node) if isinstance(origin.node, cst.Call)]


def _is_of_torch(ctx: Context, made: cst.BaseExpression) -> bool:
    return (ctx.dotted(made) or "").startswith(_OF_TORCH)


def is_plain_object(ctx: Context, node: cst.BaseExpression) -> bool:
    """Whether an expression is seen to be such an object: made by its class, or a parameter of that class."""
    made = [(origin.file, origin.node.func) for origin in ctx.origins(node) if isinstance(origin.node, cst.Call)]
    asked = made if len(made) == len(ctx.origins(node)) else [(ctx, each) for each in _annotation(ctx, node)]
    classes = [found for file, each in asked for found in file.origins(each)]
    return bool(classes) and all(isinstance(c.node, cst.ClassDef) and is_plain_class(c.file, c.node) for c in classes)


def _annotation(ctx: Context, node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The class that the parameter of this name is annotated with."""
    function = ctx.scope(node)
    if not isinstance(function, cst.FunctionDef) or not isinstance(node, cst.Name):
        return []
    param = parameter_named(node, function)
    return [param.annotation.annotation] if param is not None and param.annotation is not None else []


def is_plain_class(ctx: Context, owner: cst.ClassDef, depth: int = _DEPTH) -> bool:
    """Whether all that a class inherits from is seen, and no module among it."""
    return depth > 0 and all(_is_plain_base(ctx, base.value, depth) for base in owner.bases)


def _is_plain_base(ctx: Context, base: cst.BaseExpression, depth: int) -> bool:
    base = base.value if isinstance(base, cst.Subscript) else base
    dotted = ctx.dotted(base)
    if dotted is not None or (isinstance(base, cst.Name) and base.value == "object"):
        return (dotted or "object") in _NO_MODULES or (dotted or "").startswith(_LIBRARIES)
    made = ctx.origins(base)
    return all(isinstance(o.node, cst.ClassDef) and is_plain_class(o.file, o.node, depth - 1) for o in made)


def is_asked_for(ctx: Context, node: cst.BaseExpression) -> bool:
    """`if isinstance(model, nn.Module):` around it, or a test for FSDP."""
    for test in (each.test for each in ifs_around(ctx, node)):
        asked, kind = class_test(test, ctx) or (None, test)
        if asked is not None and ctx.code(asked) == ctx.code(node):
            return ctx.dotted(kind) == _MODULE or ctx.fsdp1(kind) == WRAPPER
    return False


def but_for_others(fix: Fix, call: cst.Call, ctx: PlannedContext) -> Fix:
    """What a call of a method becomes for a module, and the method itself for any other object."""
    method, nn = cst.ensure_type(call.func, cst.Attribute), ctx.named(Import("torch", "nn"), call)
    model = ctx.quote(method.value)
    arguments = ", ".join(quoted_argument(ctx, argument) for argument in call.args)
    (edit,) = fix.edits
    other = f"{model}.{method.attr.value}({arguments})"
    text = either(ctx, call, f"isinstance({model}, {nn.local}.Module)", edit.text, other)
    return replace(fix, edits=[replace(edit, text=text)], imports=[*fix.imports, nn])
