"""Which `torch.save` a state dict goes into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import enclosing, is_self
from codemods.reading.code.shapes import parameter_names
from codemods.reading.code.words import last_name, words


def save_of(value: cst.BaseExpression, ctx: Context) -> cst.Call | None:
    """The `torch.save` that is all that is done with a value."""
    holder: cst.CSTNode | None = value
    while isinstance(ctx.parent(holder), (cst.DictElement, cst.Dict)) if holder is not None else False:
        holder = ctx.parent(holder) if holder is not None else None
    parent = ctx.parent(holder) if holder is not None else None
    if isinstance(parent, cst.Arg):
        call = ctx.parent(parent)
        is_save = isinstance(call, cst.Call) and ctx.dotted(call.func) == "torch.save" and call.args[0] is parent
        return call if is_save and isinstance(call, cst.Call) else None
    if not isinstance(parent, cst.Assign) or len(parent.targets) != 1:
        return None
    if not isinstance(parent.targets[0].target, cst.Name):
        return None
    saves = {save_of(use, ctx) for use in ctx.uses(parent)}
    return saves.pop() if len(saves) == 1 else None


def is_saved(value: cst.CSTNode, ctx: Context) -> bool:
    """Whether a value can go into a file of `torch.save`: in what holds it, what returns it, or what saves it."""
    return any(True for _ in saves_of(value, ctx))


def saves_of(value: cst.CSTNode, ctx: Context, depth: int | None = None) -> Iterator[tuple[Context, cst.Call]]:
    """The calls of `torch.save` that it can go into."""
    depth = _DEPTH if depth is None else depth
    holder = ctx.parent(value)
    while isinstance(holder, _DISPLAYS):
        value, holder = holder, ctx.parent(holder)
    if isinstance(holder, cst.Return):
        for where, call in ctx.callers(holder) if depth > 0 else ():
            if not _is_of_library(call, where):
                yield from saves_of(call, where, depth - 1)
    elif isinstance(holder, cst.Arg):
        given_to = ctx.parent(holder)
        if isinstance(given_to, cst.Call) and given_to.func is not value:
            yield from _saving(given_to, ctx, depth)
    elif isinstance(holder, cst.Assign) and holder.value is value:
        function, end = ctx.scope(holder), ctx.span(holder)[1]
        bases = [_base(target.target) for target in holder.targets]
        names = {base.value for base in bases if isinstance(base, cst.Name)}
        for use in (use for name in names for use in _uses(name, function, ctx) if ctx.span(use)[0] >= end):
            yield from saves_of(use, ctx, depth)
        for kept in (base for base in bases if isinstance(base, cst.Attribute) and depth > 0):
            for read in (each for each in _reads_of(kept, ctx) if not ctx.span(function)[0] < ctx.span(each)[0] < end):
                yield from saves_of(read, ctx, depth - 1)


def _is_of_library(call: cst.Call, ctx: Context) -> bool:
    """Whether a method is called of nothing but what a library makes, which has one of its own."""
    made = ctx.origins(call.func.value) if isinstance(call.func, cst.Attribute) else ()
    calls = [(origin.file, origin.node) for origin in made if isinstance(origin.node, cst.Call)]
    return 0 < len(calls) == len(made) and all(where.dotted(node.func) is not None for where, node in calls)


def _base(target: cst.BaseExpression) -> cst.BaseExpression:
    """`states` of `states["optimizer"] = …`."""
    while isinstance(target, cst.Subscript):
        target = target.value
    return target


def _reads_of(kept: cst.Attribute, ctx: Context) -> Iterator[cst.Attribute]:
    """`self.state` elsewhere in the class that sets it."""
    owner = enclosing(ctx, kept, cst.ClassDef)
    for node in ctx.nodes(cst.Attribute) if is_self(kept.value, ctx) else ():
        if (
            node.attr.value == kept.attr.value
            and is_self(node.value, ctx)
            and enclosing(ctx, node, cst.ClassDef) is owner
        ):
            if not isinstance(ctx.parent(node), cst.AssignTarget):
                yield node


def _saving(call: cst.Call, ctx: Context, depth: int) -> Iterator[tuple[Context, cst.Call]]:
    """A `torch.save`, or what a function of the program calls; `dict` hands on what it gets."""
    if ctx.dotted(call.func) == "torch.save":
        yield ctx, call
    elif isinstance(call.func, cst.Name) and call.func.value in ("dict", "OrderedDict"):
        yield from saves_of(call, ctx, depth)
    elif depth > 0:
        for where, function in ctx.runs(call):
            for inner in where.calls(function):
                yield from _saving(inner, where, depth - 1)


def names_a_rank(given: Iterable[cst.CSTNode], ctx: Context) -> bool:
    """Whether the name of a file is made of a rank: then each finds its own part again, on as many ranks."""
    names = [n for argument in given for n in ctx.inside(argument) if isinstance(n, cst.Name)]
    read = [name for name in names if not isinstance(ctx.parent(name), (cst.Attribute, cst.Call))]
    made = [(o.file, o.node) for name in read for o in ctx.origins(name) if o.node is not None]
    names += [n for where, node in made for n in where.inside(node) if isinstance(n, cst.Name)]
    return any("rank" in name.value for name in names)


def may_alias(read: cst.Call, ctx: Context) -> bool:
    """Whether a full state dict can be kept whose tensors are the model's own, and go on changing with it.

    They are where each rank has the whole of them, as with NO_SHARD: there is nothing to gather. FSDP1 gave copies.
    """
    return ctx.mentions("NO_SHARD") and not _is_gone_first(read, ctx, _DEPTH)


_DEPTH = 3
"""How many functions deep a state dict is followed."""
_LOOKS = frozenset({"bool", "isinstance", "len", "print", "type"})
_STORES = frozenset({"clear", "keys", "setdefault", "update"})
"""Methods of a dict that give nothing of it away."""
_TRAINS = frozenset({"backward", "epoch", "epochs", "fit", "learn", "step", "steps", "train", "training", "update"})
_DISPLAYS = (cst.Dict, cst.DictElement, cst.Element, cst.List, cst.Tuple)
_ASKS = (cst.BooleanOperation, cst.Comparison, cst.ComparisonTarget, cst.Del, cst.Expr, cst.If, cst.UnaryOperation)


def _is_gone_first(value: cst.CSTNode, ctx: Context, depth: int) -> bool:
    """Whether nothing holds a value any more when the model trains on."""
    holder = ctx.parent(value)
    while isinstance(holder, _DISPLAYS):
        value, holder = holder, ctx.parent(holder)
    if isinstance(holder, cst.Arg):
        call = ctx.parent(holder)
        return isinstance(call, cst.Call) and _lets_go(call, holder, ctx, depth)
    if isinstance(holder, _ASKS):
        return True
    if not isinstance(holder, cst.Assign) or holder.value is not value or len(holder.targets) != 1:
        return False
    target: cst.BaseExpression = holder.targets[0].target
    while isinstance(target, cst.Subscript):  # `checkpoint["model"] = state`
        target = target.value
    function = ctx.scope(holder)
    if not isinstance(target, cst.Name) or not isinstance(function, cst.FunctionDef):
        return False
    return all(
        _loops(use, ctx) == _loops(value, ctx)
        and not _trains_between(value, use, function, ctx)
        and _is_use_gone(use, function, ctx, depth)
        for use in _uses(target.value, function, ctx)
        if ctx.span(use)[0] >= ctx.span(value)[1]
    )


def _uses(name: str, function: cst.CSTNode, ctx: Context) -> list[cst.Name]:
    """The names of that spelling, but for those that name a parameter or an argument."""
    named = [node for node in ctx.inside(function) if isinstance(node, cst.Name) and node.value == name]
    return [
        node
        for node in named
        if not isinstance(ctx.parent(node), cst.Param) and getattr(ctx.parent(node), "keyword", None) is not node
    ]


def _is_use_gone(use: cst.Name, function: cst.FunctionDef, ctx: Context, depth: int) -> bool:
    holder = ctx.parent(use)
    if ctx.scope(use) is not function:
        return False
    if isinstance(holder, cst.AssignTarget):
        return True  # another value
    if isinstance(holder, cst.Attribute):
        return holder.value is use and holder.attr.value in _STORES
    if isinstance(holder, cst.Subscript) and holder.value is use:
        return isinstance(ctx.parent(holder), cst.AssignTarget) or _is_gone_first(holder, ctx, depth)
    return _is_gone_first(use, ctx, depth)


def _lets_go(call: cst.Call, argument: cst.Arg, ctx: Context, depth: int) -> bool:
    """Whether a call keeps nothing of an argument: `torch.save`, and functions of the program that only save it."""
    if ctx.dotted(call.func) == "torch.save" and call.args[0] is argument:
        return True
    if isinstance(call.func, cst.Name) and call.func.value in _LOOKS:
        return True
    found = ctx.runs(call)
    return bool(found) and depth > 0 and all(_keeps_nothing(where, f, call, argument, depth) for where, f in found)


def _keeps_nothing(ctx: Context, function: cst.FunctionDef, call: cst.Call, argument: cst.Arg, depth: int) -> bool:
    params = parameter_names(function)
    params = params[1:] if params[:1] in (["self"], ["cls"]) else params
    index = call.args.index(argument)
    if any(each.star for each in call.args) or (argument.keyword is None and index >= len(params)):
        return False
    name = argument.keyword.value if argument.keyword is not None else params[index]
    trains = any(isinstance(node, cst.Call) and _is_training(node) for node in ctx.inside(function))
    uses = _uses(name, function, ctx)
    return name in params and not trains and all(_is_use_gone(use, function, ctx, depth - 1) for use in uses)


def _loops(node: cst.CSTNode, ctx: Context) -> list[cst.CSTNode]:
    return [outer for outer in ctx.ancestors(node) if isinstance(outer, (cst.For, cst.While))]


def _trains_between(first: cst.CSTNode, last: cst.CSTNode, function: cst.FunctionDef, ctx: Context) -> bool:
    start, end = ctx.span(first)[1], ctx.span(last)[0]
    calls = [node for node in ctx.inside(function) if isinstance(node, cst.Call)]
    return any(start <= ctx.span(c)[0] and ctx.span(c)[1] <= end and _is_training(c) for c in calls)


def _is_training(call: cst.Call) -> bool:
    return not words(last_name(call.func)).isdisjoint(_TRAINS)
