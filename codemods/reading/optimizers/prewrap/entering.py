"""Into which functions of the program a call leads, and what a model is called there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import enclosing
from codemods.reading.code.places import assigned, base, item, place, same
from codemods.reading.code.shapes import is_call_to, only_target

_BASES = 8
"""How many classes, each the base of the one before, are asked for their `__init__`."""


def entered(ctx: Context, other: cst.Call, model: str) -> Iterator[tuple[Context, cst.FunctionDef, frozenset[str]]]:
    """The program's functions that a call runs, with what the model is called in each."""
    receiver = place(other.func.value) if isinstance(other.func, cst.Attribute) else None
    target = ctx.parent(other)
    made = place(target.targets[0].target) if isinstance(target, cst.Assign) else None
    given = [(index, a, place(a.value)) for index, a in enumerate(other.args) if not a.star]
    passed = [(index, a, found) for index, a, found in given if found is not None and same(found, model)]
    owners = [owner for owner in (receiver, made) if owner is not None]
    results = list(_results(target, model)) if isinstance(target, cst.Assign) else []
    if not passed and not results and not any(same(owner, model) for owner in owners):
        return
    functions = [(where, function, receiver) for where, function in ctx.runs(other)]
    own_base = is_base_init(other)
    functions += [(where, function, "self" if own_base else made) for where, function in classes(ctx, other)]
    for where, function, owner in functions:
        names = [param.name.value for param in function.params.params]
        first = names[:1] == ["self"]
        own = set()
        for index, argument, found in passed:
            positional = ([*names[first:], ""])[min(index, len(names) - first)]
            name = argument.keyword.value if argument.keyword is not None else positional
            own.add(name + model[len(found) :] if model.startswith(f"{found}.") else name)
        if first and owner is not None and same(owner, model):
            own.add(f"self{model[len(owner) :]}")
        for position, rest in results:
            own |= set(_returned(where, function, position, rest))
        if own - {""}:
            yield where, function, frozenset(own - {""})


def _results(target: cst.Assign, model: str) -> Iterator[tuple[int | str | None, str]]:
    """Which result of a call the model is, or lies in: 0 of `net, optimizer = build()`, None for the only one.

    Of `built = build()` it is 'model' for `built['model']`.
    """
    left = target.targets[0].target
    numbered: list[tuple[int | None, cst.BaseExpression]] = [(None, left)]
    if isinstance(left, (cst.Tuple, cst.List)):
        numbered = [(index, element.value) for index, element in enumerate(left.elements)]
    for index, node in numbered:
        found = place(node)
        if found is not None and (model == found or model.startswith(f"{found}.")):
            yield index, model[len(found) :]
        elif found is not None and index is None and model.startswith(f"{found}["):
            key, _, rest = model[len(found) + 1 :].partition("]")
            yield ast.literal_eval(key), rest


def _returned(ctx: Context, function: cst.FunctionDef, position: int | str | None, rest: str) -> Iterator[str]:
    """What a function calls one of its results, or what lies in it: `net` of `return State(net)` for `.model`."""
    for returned in returned_by(ctx, function):
        value: cst.BaseExpression | None = returned
        if position is not None:
            value = next((each for key, each in items_of(ctx, function, returned) if key == position), None)
        found = place(value) if value is not None else None
        if found is not None:
            yield f"{found}{rest}"
        elif isinstance(value, cst.Call) and rest:
            yield from given_as(ctx, value, rest)


def given_as(ctx: Context, call: cst.Call, rest: str) -> Iterator[str]:
    """What a constructor is given that its object keeps: `net` of `Trainer(net)`, for `.model`."""
    for where, init in classes(ctx, call):
        kept = aliases(where, init, frozenset({f"self{rest}"}))
        for name, argument in arguments_of(init, call):
            given = base(argument.value)
            if name in kept and given is not None:
                yield given


def arguments_of(init: cst.FunctionDef, call: cst.Call) -> Iterator[tuple[str, cst.Arg]]:
    """The arguments of a constructor's call by the names that `__init__` has for them."""
    names = [param.name.value for param in init.params.params][1:]
    for position, argument in enumerate(call.args):
        if argument.keyword is not None:
            yield argument.keyword.value, argument
        elif not argument.star and position < len(names):
            yield names[position], argument


def own_inits(ctx: Context, site: cst.CSTNode) -> list[tuple[Context, cst.FunctionDef]]:
    """The `__init__` that has run before a method does in which something stands: it is another, and calls it not."""
    function, owner = ctx.scope(site), enclosing(ctx, site, cst.ClassDef)
    if owner is None or not isinstance(function, cst.FunctionDef) or ctx.scope(function) is not owner:
        return []
    callers = {where.scope(call) for where, call in ctx.callers(site)}
    return [(where, init) for where, init in _inits(ctx, owner) if init is not function and init not in callers]


def constructions(ctx: Context, site: cst.CSTNode) -> Iterator[tuple[Context, cst.Call]]:
    """The calls that make the object in whose method something stands."""
    for where, init in own_inits(ctx, site):
        yield from where.callers(init.body.body[0])


def items_of(
    ctx: Context, function: cst.FunctionDef, value: cst.BaseExpression
) -> Iterator[tuple[int | str, cst.BaseExpression]]:
    """What a tuple, list or dict holds, by number or key, also what a function puts into one of a name."""
    if isinstance(value, (cst.Tuple, cst.List)):
        yield from ((index, element.value) for index, element in enumerate(value.elements))
    elif isinstance(value, cst.Dict):
        for pair in value.elements:
            if isinstance(pair, cst.DictElement) and isinstance(pair.key, (cst.SimpleString, cst.Integer)):
                yield _literal(pair.key), pair.value
    elif is_call_to(value, "dict"):
        yield from ((each.keyword.value, each.value) for each in value.args if each.keyword is not None)
    elif isinstance(value, cst.Name):
        for node in ctx.inside(function.body):
            target = only_target(node) if isinstance(node, cst.Assign) else None
            held = item(target)
            if isinstance(node, cst.Assign) and held is not None and held.startswith(f"{value.value}["):
                yield ast.literal_eval(held[len(value.value) + 1 : -1]), node.value


def _literal(key: cst.SimpleString | cst.Integer) -> int | str:
    value = key.evaluated_value
    return value if isinstance(value, int) else str(value)


def returned_by(ctx: Context, function: cst.FunctionDef) -> Iterator[cst.BaseExpression]:
    """What a function returns; of a variable what it is bound to as well."""
    for node in ctx.inside(function.body):
        if isinstance(node, cst.Return) and node.value is not None and ctx.scope(node) is function:
            yield node.value
            bound = ctx.bound(node.value) if isinstance(node.value, cst.Name) else None
            yield from (value for where, value in bound or () if where.path == ctx.path)


def is_base_init(call: cst.Call) -> bool:
    """`super().__init__(...)`, or `super(Own, self).__init__(...)`."""
    method = call.func
    parent = method.value if isinstance(method, cst.Attribute) and method.attr.value == "__init__" else None
    return isinstance(parent, cst.Call) and isinstance(parent.func, cst.Name) and parent.func.value == "super"


def classes(ctx: Context, call: cst.Call) -> list[tuple[Context, cst.FunctionDef]]:
    """The `__init__` of the program's class that a call makes an object of; `super().__init__` is that of a base."""
    if is_base_init(call):
        around = enclosing(ctx, call, cst.ClassDef)
        return _inits_of_bases(ctx, around) if around is not None else []
    made = [origin for origin in ctx.origins(call.func) if isinstance(origin.node, cst.ClassDef)]
    return [found for origin in made for found in _inits(origin.file, cst.ensure_type(origin.node, cst.ClassDef))]


def _inits(ctx: Context, owner: cst.ClassDef, depth: int = _BASES) -> list[tuple[Context, cst.FunctionDef]]:
    for node in owner.body.body:
        if isinstance(node, cst.FunctionDef) and node.name.value == "__init__":
            return [(ctx, node)]
    return _inits_of_bases(ctx, owner, depth)


def _inits_of_bases(ctx: Context, owner: cst.ClassDef, depth: int = _BASES) -> list[tuple[Context, cst.FunctionDef]]:
    origins = [origin for argument in owner.bases for origin in ctx.origins(argument.value)] if depth else []
    bases = [(origin.file, origin.node) for origin in origins if isinstance(origin.node, cst.ClassDef)]
    return [found for where, above in bases for found in _inits(where, above, depth - 1)]


def aliases(ctx: Context, function: cst.FunctionDef, places: frozenset[str]) -> frozenset[str]:
    """`self.model` for `model`, and the other way round, after `self.model = model`."""
    found = set()
    for node in ctx.inside(function.body):
        for target, value in assigned(node) if isinstance(node, cst.Assign) and len(node.targets) == 1 else ():
            pair = {place(target), place(value)}
            if None not in pair and pair & places:
                found |= {each for each in pair if each is not None}
    return frozenset(found)


def object_of(ctx: Context, function: cst.FunctionDef, other: cst.Call) -> str | None:
    """The place of the object that a called method has for `self`."""
    if is_base_init(other):
        return "self"
    target = ctx.parent(other)
    if function.name.value == "__init__":
        return place(target.targets[0].target) if isinstance(target, cst.Assign) else None
    return place(other.func.value) if isinstance(other.func, cst.Attribute) else None
