"""Whether a value holds the parameters themselves: not a copy, a count or another function's result."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import takewhile

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import contains
from codemods.reading.code.places import assigned, base, bound, place, writes
from codemods.reading.code.shapes import called_on, is_attribute
from codemods.reading.parameters.lists import put_in
from codemods.reading.parameters.of_model import READERS

from .entering import classes

WALKS = ("modules", "named_modules", "children", "named_children")
"""The methods of a module that give the modules in it."""
TENSORS = frozenset({"weight", "bias"})
_COUNTS = frozenset({"all", "any", "len", "max", "min", "sum"})
_IGNORED = frozenset({"ignored_parameters", "ignored_states"})


def is_kept(ctx: Context, value: cst.BaseExpression, parameters: cst.CSTNode) -> bool:
    """Whether an assigned value holds the parameters themselves: not a copy, a count or another call's result."""
    if value is parameters:
        return True
    if isinstance(value, cst.Call):
        if ctx.code(value.func) not in {"dict", "list", "tuple", "filter", "set"}:
            return _is_object(ctx, value)
        return all(
            not isinstance(argument.value, cst.BaseComp) or _keeps(ctx, argument.value) for argument in value.args
        )
    if isinstance(value, cst.BaseComp):
        return _keeps(ctx, value)
    return isinstance(value, (cst.List, cst.Dict, cst.Tuple)) and not _is_counted(ctx, value, parameters)


def _is_counted(ctx: Context, display: cst.BaseExpression, parameters: cst.CSTNode) -> bool:
    """`{"head": sum(p.numel() for p in model.head.parameters())}` holds a number."""
    within = takewhile(lambda node: node is not display, ctx.ancestors(parameters))
    return any(isinstance(node, cst.Call) and ctx.code(node.func) in _COUNTS for node in within)


def _keeps(ctx: Context, loop: cst.BaseComp) -> bool:
    """Whether a comprehension collects the parameters that it goes over, and not something that is made of them."""
    assert isinstance(loop, (cst.DictComp, cst.BaseSimpleComp))
    collected = [loop.key, loop.value] if isinstance(loop, cst.DictComp) else [loop.elt]
    return any(is_itself(ctx, node, each) for each in collected for node in _parameters_in(ctx, each, loop.for_in))


def _parameters_in(ctx: Context, node: cst.CSTNode, loop: cst.For | cst.CompFor) -> Iterator[cst.CSTNode]:
    """The parameters that a loop goes over, where a part of it names them: `p`, or `m.weight` of a module."""
    names, method = list(bound(loop.target)), _method(loop.iter)
    names = names[1:] if len(names) == 2 and method.startswith("named_") else names
    of_modules = is_walk(ctx, loop.iter)
    parameters = _inner_parameters(ctx, loop, names) if of_modules else names
    for each in ctx.inside(node):
        if place(each) in parameters:
            yield each
        elif of_modules and place(each) in names:
            holder = ctx.parent(each)
            if isinstance(holder, cst.Attribute) and holder.value is each and holder.attr.value in TENSORS:
                yield holder


def _inner_parameters(ctx: Context, walk: cst.For | cst.CompFor, modules: Collection[str]) -> list[str]:
    """What loops within a walk call the parameters of its modules: `p` of `for name, p in m._parameters.items()`."""
    loops = [n for n in ctx.inside(walk) if isinstance(n, (cst.For, cst.CompFor)) and n is not walk]
    return [list(bound(n.target))[-1] for n in loops if _gives_own(ctx, n.iter, modules)]


def _gives_own(ctx: Context, over: cst.BaseExpression, modules: Collection[str]) -> bool:
    own = [n.value for n in ctx.inside(over) if is_attribute(n, "_parameters", *READERS)]
    return any(base(module) in modules for module in own)


def is_walk(ctx: Context, over: cst.BaseExpression) -> bool:
    return walked(ctx, over) is not None


def walked(ctx: Context, over: cst.BaseExpression) -> cst.BaseExpression | None:
    """The model whose modules an expression gives: by `net.modules()`, or by a list of some of them."""
    if isinstance(over, cst.Name):
        lists = [value for file, value in ctx.bound(over) or () if file.path == ctx.path]
        return next((model for each in lists for model in _listed(ctx, each)), None)
    return called_on(over, *WALKS)


def _listed(ctx: Context, made: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """`net` of `[m for m in net.modules() if isinstance(m, nn.LayerNorm)]`, and of a list that a loop puts them in."""
    walks = list(put_in(made, ctx))
    if isinstance(made, cst.BaseSimpleComp) and place(made.elt) in set(bound(made.for_in.target)):
        walks.append(made.for_in.iter)
    yield from (model for each in walks if (model := called_on(each, *WALKS)) is not None)


def _method(call: cst.BaseExpression) -> str:
    return call.func.attr.value if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) else ""


def is_itself(ctx: Context, node: cst.CSTNode, whole: cst.CSTNode) -> bool:
    """Whether a part of an expression is held by it as it is, or by its `id`: not what is read or made of it."""
    around = [] if node is whole else [*takewhile(lambda outer: outer is not whole, ctx.ancestors(node)), whole]
    made = [each for each in around if isinstance(each, (cst.Attribute, cst.Call))]
    return all(isinstance(each, cst.Call) and ctx.code(each.func) == "id" for each in made)


def _is_object(ctx: Context, call: cst.Call) -> bool:
    """`Average(model.parameters())`: an object can keep what it is given; what a function returns is a value."""
    own = classes(ctx, call)
    if not own:
        return ctx.code(call.func).rsplit(".", 1)[-1][:1].isupper()
    for where, function in own:
        names = {param.name.value for param in function.params.params[1:]}
        for node in where.inside(function.body):
            if not isinstance(node, cst.Assign):
                continue
            if any(is_kept(where, node.value, n) for n in where.inside(node.value) if place(n) in names):
                if isinstance(node.targets[0].target, cst.Attribute):
                    return True
                names |= writes(node)
    return False


def passes_on(ctx: Context, value: cst.BaseExpression, kept: frozenset[str], made: cst.BaseExpression) -> bool:
    """Whether a value is, or holds, what is kept under one of these names, or what the call makes."""
    return any((node is made or place(node) in kept) and is_kept(ctx, value, node) for node in ctx.inside(value))


def written_by(ctx: Context, call: cst.BaseExpression) -> frozenset[str]:
    """What the statement around a call binds or changes; of a loop, what it collects in."""
    for node in ctx.ancestors(call):
        if isinstance(node, cst.Assign):
            targets = [target for target, value in assigned(node) if value is call or contains(ctx, value, call)]
            return frozenset(found for target in targets for found in bound(target))
        if isinstance(node, cst.SimpleStatementLine):
            return writes(node)
        if isinstance(node, cst.For):
            return frozenset(collected_in(ctx, node))
    return frozenset()


def collected_in(ctx: Context, loop: cst.For) -> Iterator[str]:
    """Where a loop puts what it goes over: `decay` of `decay.append(p)`, `by_name` of `by_name[name] = p`."""
    variables, of_modules = list(bound(loop.target)), is_walk(ctx, loop.iter)
    for node in ctx.inside(loop.body):
        if isinstance(node, cst.Expr) and is_collecting(node.value):
            put = cst.ensure_type(node.value, cst.Call).args[0]
            seen = of_modules or any(place(n) in variables for n in ctx.inside(put))
            if not seen or any(is_itself(ctx, n, put) for n in _parameters_in(ctx, put, loop)):
                yield from writes(node)
        if isinstance(node, cst.Assign) and isinstance(node.targets[0].target, cst.Subscript):
            if any(each is node.value for each in _parameters_in(ctx, node.value, loop)):
                yield from writes(node)


def are_ignored(ctx: Context, names: frozenset[str | None]) -> bool:
    """Whether a collection is what the file has ignored, by name: those parameters stay as they are.

    The name may stand in the constructor call, in `dict(ignored_states=frozen)`, or in a call that passes it on.
    """
    ignored = {place(a.value) for c in ctx.nodes(cst.Call) for a in c.args if a.keyword and a.keyword.value in _IGNORED}
    for item in ctx.nodes(cst.DictElement):
        if isinstance(item.key, cst.SimpleString) and item.key.evaluated_value in _IGNORED:
            ignored.add(place(item.value))
    return bool(names & (ignored - {None}))


def is_collecting(call: cst.CSTNode) -> bool:
    """`decay.append(p)`."""
    methods = ("append", "extend", "add", "add_param_group")
    return isinstance(call, cst.Call) and is_attribute(call.func, *methods) and bool(call.args)
