"""Where a program goes over the parameters of a wrapped model, outside of `summon_full_params`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import get_args

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.code.enclosing import is_label
from codemods.reading.code.once import once
from codemods.reading.code.shapes import called_on, only_target, receiver
from codemods.reading.models.parts import wrapped_around
from codemods.reading.optimizers.makers import groups_by_dimension
from codemods.reading.parameters.lists import appended, given_to_optimizer, heads, makers, put_in

READERS = ("parameters", "named_parameters")
"""The methods of a module that give its parameters."""
_TENSORS = frozenset({"weight", "bias"})
_DEPTH = 3
"""How many names are followed that stand for parameters: `named = list(named)`."""
_RANK = re.compile(
    r"rank\w*(\(\))?\s*==\s*0|is_main\w*|is_master\w*|\b(main|master)_process\b|is_rank_?(zero|0)|not\s+\w*rank\b"
)


Loop = cst.For | cst.GeneratorExp | cst.ListComp | cst.DictComp | cst.SetComp


@dataclass(frozen=True)
class Reading:
    """A loop over parameters, or one parameter that is named: `model.out.weight`."""

    node: cst.CSTNode
    """What to point at."""
    body: cst.CSTNode
    """The loop or comprehension, or the statement that the parameter stands in."""
    param: cst.BaseExpression
    """What the parameter is called there: the loop's variable, or `model.out.weight` itself."""

    def seen(self, ctx: Context) -> Iterator[cst.BaseExpression]:
        """Where the body speaks of the parameter."""
        text = ctx.code(self.param)
        for node in (self.body, *ctx.inside(self.body)):
            if isinstance(node, type(self.param)) and ctx.code(node) == text and not is_label(node, ctx):
                yield node


def readings(ctx: Context) -> Iterator[Reading]:
    """Every place of a file where a wrapped model's parameters are seen, its shards and not whole ones."""
    yield from handed_on(ctx)
    places = (node for kind in (cst.Call, cst.Attribute) for node in ctx.nodes(kind))
    yield from (each for each in _named(places, ctx) if not is_summoned(each.node, ctx))


def whole_readings(block: cst.With, ctx: Context) -> Iterator[Reading]:
    """The same inside of `with FSDP.summon_full_params(model):`."""
    yield from _named(ctx.inside(block.body), ctx)


def _named(places: Iterable[cst.CSTNode], ctx: Context) -> Iterator[Reading]:
    """Loops over `model.parameters()`, and parameters by their names: `model.out.weight`."""
    for node in places:
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in READERS:
            loop = _loop(node, ctx)
            if loop is not None and wrapped_around(node.func.value, ctx) is not None:
                yield Reading(node, loop, parameter_of(node, loop))
        elif isinstance(node, cst.Attribute) and node.attr.value in _TENSORS:
            if any(wrapped_around(owner, ctx) is not None for owner in _owners(node)):
                statement = next((n for n in ctx.ancestors(node) if isinstance(n, cst.BaseSmallStatement)), node)
                yield Reading(node, statement, node)


def handed_on(ctx: Context) -> Iterator[Reading]:
    """The loops over parameters that come by a name: `for p in params`, with `model.parameters()` at a call."""
    loops: list[Loop] = [loop for kind in get_args(Loop) for loop in ctx.nodes(kind)]
    for loop in loops:
        for given in _given(loop):
            if gives_parameters(given, ctx):
                yield Reading(given, loop, parameter_of(given, loop))
        for given, key in _over_keys(loop):
            if has_parameters_as_keys(given, ctx):
                yield Reading(given, loop, key)


def _over_keys(loop: Loop) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """The dicts whose keys a loop goes over, `d` of `d`, `d.keys()` and `d.items()`, and what it calls one."""
    for head in heads(loop):
        owner = called_on(head.iter, "items", "keys")
        if owner is None:
            yield head.iter, head.target
        elif called_on(head.iter, "keys") is not None:
            yield owner, head.target
        elif isinstance(head.target, cst.Tuple):
            yield owner, head.target.elements[0].value


def has_parameters_as_keys(made: cst.CSTNode | None, ctx: Context, depth: int = _DEPTH) -> bool:
    """Whether an expression is a dict that is keyed by a wrapped model's parameters."""
    if isinstance(made, (cst.Name, cst.Attribute)) and depth:
        return any(has_parameters_as_keys(o.node, o.file, depth - 1) for o in ctx.origins(made) if o.node is not made)
    if not isinstance(made, cst.DictComp):
        return False
    readers = (call for call in _readers(made, ctx) if ctx.code(parameter_of(call, made)) == ctx.code(made.key))
    return any(_is_sharded(receiver(call), call, ctx) for call in readers)


def _given(loop: Loop) -> Iterator[cst.BaseExpression]:
    """What a loop goes over, by name: `params` and `others` of `enumerate(zip(params, others.values()))`."""
    waiting = [head.iter for head in heads(loop)]
    while waiting:
        over = waiting.pop()
        if isinstance(over, (cst.Name, cst.Attribute, cst.Subscript)):
            yield over
        elif isinstance(over, cst.Call) and isinstance(over.func, cst.Attribute) and not over.args:
            if over.func.attr.value in {"items", "values"}:
                waiting.append(over.func.value)
        elif isinstance(over, cst.Call) and isinstance(over.func, cst.Name):
            waiting += [argument.value for argument in over.args]


@once
def gives_parameters(made: cst.CSTNode | None, ctx: Context, depth: int = _DEPTH) -> bool:
    """Whether an expression is a wrapped model's parameters, all or some, as they are."""
    if isinstance(made, (cst.Name, cst.Attribute)) and depth:
        return any(gives_parameters(o.node, o.file, depth - 1) for o in ctx.origins(made) if o.node is not made)
    if isinstance(made, cst.Call):
        if isinstance(made.func, cst.Attribute) and made.func.attr.value in READERS:
            return _is_sharded(made.func.value, made, ctx)
        given = made.args if isinstance(made.func, cst.Name) else ()
        return any(gives_parameters(each.value, ctx, depth) for each in given)
    if isinstance(made, cst.Subscript) and depth:
        return any(gives_parameters(each, where, depth - 1) for where, each in given_to_optimizer(made, ctx))
    if isinstance(made, cst.List) and depth:
        return any(gives_parameters(each, ctx, depth - 1) for each in put_in(made, ctx))
    if isinstance(made, (cst.GeneratorExp, cst.ListComp, cst.DictComp)):
        kept = made.value if isinstance(made, cst.DictComp) else made.elt
        return any(
            ctx.code(parameter_of(call, made)) == ctx.code(kept) and _is_sharded(receiver(call), call, ctx)
            for call in _readers(made, ctx)
        ) or any(
            ctx.code(parameter_of(given, made)) == ctx.code(kept) and gives_parameters(given, ctx, depth - 1)
            for given in (_given(made) if depth else ())
        )
    return False


def is_of_wrapped(optimizer: cst.BaseExpression, ctx: Context) -> bool:
    """Whether an optimizer is seen to be made of a wrapped model, or of its parameters."""
    given = [(where, argument.value) for where, call in makers(optimizer, ctx) for argument in call.args]
    return any(ModelKind.FSDP in where.kinds(each) or holds_parameters(each, where) for where, each in given)


@once
def holds_parameters(given: cst.CSTNode | None, ctx: Context, depth: int = _DEPTH) -> bool:
    """Whether what an optimizer is made of holds parameters of a wrapped model, or of a part of it: in groups too."""
    if gives_parameters(given, ctx) or (isinstance(given, cst.Name) and is_shard(given, ctx)):
        return True
    if isinstance(given, (cst.List, cst.Tuple)):
        filled = appended(given, ctx) if depth else ()
        return any(holds_parameters(each, ctx, depth) for each in (e.value for e in given.elements)) or any(
            holds_parameters(each, ctx, depth - 1) for each in filled
        )
    if isinstance(given, cst.Dict):
        return any(holds_parameters(element.value, ctx, depth) for element in given.elements)
    if isinstance(given, (cst.ListComp, cst.GeneratorExp)):
        return any(_is_sharded(receiver(call), call, ctx) for call in _readers(given, ctx)) or holds_parameters(
            given.elt, ctx, depth
        )
    if isinstance(given, cst.Call):
        is_read = isinstance(given.func, cst.Attribute) and ModelKind.FSDP in ctx.kinds(given.func.value)
        is_chain = isinstance(given.func, cst.Name) or (ctx.dotted(given.func) or "").startswith("itertools.")
        if groups_by_dimension(ctx, given) and any(ModelKind.FSDP in ctx.kinds(each.value) for each in given.args):
            return True
        if is_read or (is_chain and any(holds_parameters(each.value, ctx, depth) for each in given.args)):
            return True  # not an optimizer around another, which other scripts may hand in
    made = ctx.origins(given) if depth and isinstance(given, cst.BaseExpression) else ()
    return any(holds_parameters(o.node, o.file, depth - 1) for o in made if o.node is not given)


def loops_over(call: cst.Call | Loop, ctx: Context) -> list[Loop]:
    """The loops over what `model.named_parameters()`, or a loop over it, gives: the one it stands in, and those over
    variables of the same function that hold what it gives, or what such a loop made of it."""
    own = call if isinstance(call, Loop) else _loop(call, ctx)
    found = [own] if own is not None else []
    waiting, scope = [variable_of(call, ctx)], ctx.scope(call)
    loops: list[Loop] = [loop for kind in get_args(Loop) for loop in ctx.nodes(kind) if ctx.scope(loop) is scope]
    while waiting:
        name = waiting.pop()
        for loop in loops if name else ():
            over = loop.iter if isinstance(loop, cst.For) else loop.for_in.iter
            named = (n for n in (over, *ctx.inside(over)) if isinstance(n, cst.Name) and n.value == name)
            if loop not in found and not all(is_label(each, ctx) for each in named):
                found.append(loop)
                waiting.append("" if isinstance(loop, cst.For) else variable_of(loop, ctx))
    return found


def variable_of(made: cst.CSTNode, ctx: Context) -> str:
    """The variable that an expression is assigned to, as it is or in a call: `list(model.named_parameters())`."""
    for outer in ctx.ancestors(made):
        if isinstance(outer, cst.Assign):
            target = only_target(outer)
            return target.value if isinstance(target, cst.Name) else ""
        if not isinstance(outer, (cst.Call, cst.Arg, cst.BaseComp, cst.CompFor)):
            return ""
    return ""


def is_shard(value: cst.BaseExpression, ctx: Context) -> bool:
    """Whether an expression is a wrapped model's parameter: `model.out.weight`, or what a loop over them calls it."""
    if isinstance(value, cst.Attribute) and value.attr.value in _TENSORS:
        is_put_in = is_put_in_wrapped(value.value, ctx) and not is_summoned(value, ctx)
        return is_put_in or any(_is_sharded(owner, value, ctx) for owner in _owners(value))
    loops = [node for node in ctx.ancestors(value) if isinstance(node, Loop)] if isinstance(value, cst.Name) else []
    read = any(
        ctx.code(parameter_of(call, loop)) == ctx.code(value) and _is_sharded(receiver(call), call, ctx)
        for loop in loops
        for call in _readers(loop, ctx)
    )
    return read or any(
        ctx.code(parameter_of(given, loop)) == ctx.code(value) and gives_parameters(given, ctx)
        for loop in loops
        for given in _given(loop)
    )


def models_around(value: cst.BaseExpression, ctx: Context) -> list[cst.BaseExpression]:
    """The models, sharded or not, of the loops over parameters whose variable a name is."""
    return [
        receiver(call)
        for loop in ctx.ancestors(value)
        if isinstance(loop, Loop)
        for call in _readers(loop, ctx)
        if ctx.code(parameter_of(call, loop)) == ctx.code(value)
    ]


def _readers(loop: Loop, ctx: Context) -> Iterator[cst.Call]:
    """The calls that give the parameters which a loop goes over."""
    head = loop.iter if isinstance(loop, cst.For) else loop.for_in
    return (call for call in ctx.inside(head) if isinstance(call, cst.Call) and called_on(call, *READERS) is not None)


def is_guarded(node: cst.CSTNode, ctx: Context) -> bool:
    """Whether only one rank comes here: `if rank == 0:`."""
    return any(isinstance(outer, cst.If) and _RANK.search(ctx.code(outer.test)) for outer in ctx.ancestors(node))


def is_summoned(node: cst.CSTNode, ctx: Context) -> bool:
    """Whether parameters are whole here."""
    blocks = [outer for outer in ctx.ancestors(node) if isinstance(outer, cst.With)]
    return any("summon_full_params" in ctx.code(item) for block in blocks for item in block.items)


def _owners(attribute: cst.Attribute) -> Iterator[cst.BaseExpression]:
    """`model.out` and `model` of `model.out.weight`; `model` of `model.get_input_embeddings().weight`."""
    owner: cst.BaseExpression = attribute.value
    while isinstance(owner, (cst.Attribute, cst.Subscript, cst.Name, cst.Call)):
        if isinstance(owner, cst.Call):
            if owner.args or not isinstance(owner.func, cst.Attribute):
                return
            owner = owner.func.value
            continue
        yield owner
        if isinstance(owner, cst.Name):
            return
        owner = owner.value


def _is_sharded(model: cst.BaseExpression, at: cst.CSTNode, ctx: Context) -> bool:
    """Whether a module is a wrapped model or a part of one, and its parameters are not whole at this place."""
    return wrapped_around(model, ctx) is not None and not is_summoned(at, ctx)


def parameter_of(call: cst.BaseExpression, loop: Loop) -> cst.BaseExpression:
    """What a loop calls the parameters: `p` in `for i, (p, q) in enumerate(zip(model.parameters(), qs))`."""
    head = loop if isinstance(loop, cst.For) else loop.for_in
    while isinstance(head, cst.CompFor) and head.inner_for_in is not None and not _holds(head.iter, call):
        head = head.inner_for_in
    target: cst.BaseExpression = head.target
    over: cst.BaseExpression = head.iter
    while over is not call and isinstance(over, cst.Call) and over.args:
        function = over.func.value if isinstance(over.func, cst.Name) else None
        index = next((i for i, argument in enumerate(over.args) if _holds(argument, call)), 0)
        if function in {"zip", "enumerate"} and isinstance(target, cst.Tuple):
            last = len(target.elements) - 1  # `for x, *rest in zip(...)` has fewer
            target = target.elements[min(index, last) if function == "zip" else last].value
        over = over.args[index].value
    return target.elements[-1].value if isinstance(target, cst.Tuple) else target


def _holds(node: cst.CSTNode, call: cst.BaseExpression) -> bool:
    return node is call or any(_holds(child, call) for child in node.children)


def _loop(call: cst.Call, ctx: Context) -> Loop | None:
    """The loop or comprehension over what the call returns."""
    for node in ctx.ancestors(call):
        if isinstance(node, Loop):
            return node
        if isinstance(node, (cst.SimpleStatementLine, cst.Lambda)):
            return None
    return None


@once
def is_put_in_wrapped(got: cst.BaseExpression, ctx: Context) -> bool:
    """Whether some `x.set_embeddings(FSDP(…))` of the program is what `x.get_embeddings()` gives."""
    if not isinstance(got, cst.Call) or got.args or not isinstance(got.func, cst.Attribute):
        return False
    name = got.func.attr.value
    setter = f"set_{name.removeprefix('get_')}"
    calls = [(where, call) for where in ctx.files(setter) for call in where.nodes(cst.Call) if call.args]
    put = [(where, call.args[0].value) for where, call in calls if called_on(call, setter) is not None]
    return name.startswith("get_") and any(ModelKind.FSDP in where.kinds(each) for where, each in put)
