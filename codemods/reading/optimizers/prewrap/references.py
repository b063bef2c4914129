"""What holds a model's parameters from before they are sharded: optimizers, parameter lists, groups.

FSDP1 with use_orig_params=True goes on training the parameters that were there before. FSDP2 puts new ones in their
place, and an optimizer that holds the old ones updates nothing, without an error (16 of 16 parameters, measured on
torch 2.13).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import enclosing
from codemods.reading.code.places import base, bound, item, meets, place, reads, same, writes
from codemods.reading.code.shapes import called_on, is_attribute
from codemods.reading.optimizers.makers import is_bound_to_optimizer, is_optimizer
from codemods.reading.optimizers.prewrap.inside import other_names, parameters_above
from codemods.reading.parameters.lists import heads
from codemods.reading.parameters.of_model import READERS
from codemods.reading.wraps.manual import is_constructor
from codemods.reading.wraps.wrapped import calls_above, wrapped_module

from .entering import aliases, entered, returned_by
from .inside import is_returned, kept_outside, only_reads
from .keeping import WALKS, are_ignored, collected_in, is_collecting, is_kept, is_walk, walked, written_by

_PROPERTY = frozenset({"property", "cached_property", "functools.cached_property"})
_DEPTH = 2
"""Into how many functions, one called by the other, is looked for what builds an optimizer."""


@dataclass(frozen=True)
class PrewrapReference:
    """A call above the wrap by which something gets hold of the parameters, or the name of one of them."""

    call: cst.BaseExpression
    is_optimizer: bool
    """Whether it makes an optimizer; if not, it only keeps parameters, for an optimizer or for something else."""
    name: str = ""
    """Where the optimizer is kept when that is not what the call returns: `trainer.optimizer`."""
    can_move: bool = True
    """Whether the functions that it runs only read the model, as far as they are the program's own."""


def references_above(ctx: Context, site: cst.Call, model: str) -> tuple[PrewrapReference, ...]:
    """The holders of one model's parameters above a call."""
    parts = dict(other_names(ctx, site, model))
    parts |= {held: True for held in [item(wrapped_module(site))] if held is not None}
    found: list[PrewrapReference] = [PrewrapReference(value, False) for value in parameters_above(ctx, site, model)]
    is_one_of_several = _is_one_of_several(ctx, site)
    for other in calls_above(ctx, site, model):
        found += _holder(ctx, other, model)
        for name, is_all in parts.items():
            if is_all or is_attribute(other.func, *READERS, *WALKS):
                found += _holder(ctx, other, name)
        if is_one_of_several and _is_of_one_of_several(ctx, other) and is_optimizer(ctx, other):
            found.append(PrewrapReference(other, True))
    whole = [model, *(name for name, is_all in parts.items() if is_all)]
    found += [
        PrewrapReference(other, True) for other in calls_above(ctx, site, model) if _is_of_parts(ctx, other, whole)
    ]
    for over in _named_walks(ctx, site):
        walk = walked(ctx, over)
        owner = base(walk) if walk is not None else None
        if owner is not None and any(same(owner, name) for name in whole):
            found += _reader(ctx, over)
    return tuple(dict.fromkeys(found))


def _is_of_parts(ctx: Context, optimizer: cst.Call, models: Collection[str]) -> bool:
    """`SGD(m.parameters())` in a loop over `net.named_children()`."""
    if not is_optimizer(ctx, optimizer):
        return False
    owners = [model for node in ctx.inside(optimizer) if (model := called_on(node, *READERS)) is not None]
    loops = [node for node in ctx.ancestors(optimizer) if isinstance(node, (cst.For, cst.BaseComp))]
    walks = [(head, walk) for loop in loops for head in heads(loop) if (walk := walked(ctx, head.iter)) is not None]
    return any(
        base(owner) in set(bound(head.target)) and any(same(base(walk) or "", name) for name in models)
        for head, walk in walks
        for owner in owners
    )


def _named_walks(ctx: Context, site: cst.Call) -> Iterator[cst.Name]:
    """What loops above a call go over by its name: `norms` of `[m.weight for m in norms]`."""
    here, scope = ctx.span(site)[0], ctx.scope(site)
    overs = [loop.iter for loop in ctx.nodes(cst.For)] + [loop.iter for loop in ctx.nodes(cst.CompFor)]
    for over in overs:
        if isinstance(over, cst.Name) and ctx.span(over)[0] < here and ctx.scope(over) is scope:
            yield over


def references_in(ctx: Context, site: cst.Call, model: str) -> Iterator[PrewrapReference]:
    """Those that are made among a call's arguments: `Trainer(net, SGD(net.parameters()))`, which has no name yet."""
    for argument in site.args:
        for other in (node for node in ctx.inside(argument.value) if isinstance(node, cst.Call)):
            for holder in _holder(ctx, other, model):
                name = ctx.code(argument.value) if holder.call is argument.value else ""
                yield replace(holder, name=holder.name or name, can_move=False)


def built_in_own(ctx: Context, init: cst.FunctionDef, model: str) -> Iterator[PrewrapReference]:
    """What `__init__` builds from the parameters of `self.model`, and keeps in an attribute."""
    places = frozenset({model})
    for inner in _built_in(ctx, init, places | aliases(ctx, init, places), _DEPTH):
        kept = frozenset({inner.name}) if inner.name else written_by(ctx, inner.call)
        for name in sorted(kept | aliases(ctx, init, kept)):
            if name.startswith("self."):
                yield PrewrapReference(inner.call, inner.is_optimizer, name, False)


def _is_one_of_several(ctx: Context, site: cst.Call) -> bool:
    """`for net, optimizer in runs: FSDP(net)`: which of the models it is, is not followed."""
    module = wrapped_module(site)
    return module is not None and _is_turn(ctx, module)


def _is_of_one_of_several(ctx: Context, optimizer: cst.Call) -> bool:
    """`[AdamW(net.parameters()) for net in nets]`."""
    readers = (node for node in ctx.inside(optimizer) if isinstance(node, cst.Call))
    return any(is_attribute(each.func, *READERS) and _is_turn(ctx, each.func.value) for each in readers)


def _is_turn(ctx: Context, node: cst.BaseExpression) -> bool:
    """Whether a name is the variable of a loop or comprehension around it."""
    name = base(node)
    loops = (outer for outer in ctx.ancestors(node) if isinstance(outer, (cst.For, cst.BaseComp)))
    targets = (outer.target if isinstance(outer, cst.For) else outer.for_in.target for outer in loops)
    return any(name in set(bound(target)) for target in targets)


def _holder(ctx: Context, other: cst.Call, model: str, depth: int = _DEPTH) -> Iterator[PrewrapReference]:
    if is_constructor(ctx, other):
        return
    made = list(_made_inside(ctx, other, model, depth)) if depth else []
    owner = _owner(other.func.value) if isinstance(other.func, cst.Attribute) else None
    given = [owner, *(item(argument.value) or place(argument.value) for argument in other.args)]
    is_given = any(found is not None and same(found, model) for found in given)
    if not made and not is_given:
        return  # whatever the call makes
    if any("[" in holder.name for holder in made):
        yield from made  # `built = build(config)`, with the optimizer in it
    elif is_optimizer(ctx, other) and (not any(holder.name for holder in made) or _is_bound(ctx, other)):
        if is_given:
            yield PrewrapReference(other, True)
    elif is_attribute(other.func, *READERS, *WALKS):
        if owner is not None and same(owner, model):
            yield from _reader(ctx, other)
    else:
        yield from made


def _owner(node: cst.BaseExpression) -> str | None:
    return item(node) or base(node)


def _reader(ctx: Context, parameters: cst.Call | cst.Name) -> Iterator[PrewrapReference]:
    """`model.parameters()`, where an optimizer or a variable keeps them."""
    outermost = parameters
    for node in ctx.ancestors(parameters):
        if isinstance(node, cst.Call):
            if is_optimizer(ctx, node) or is_bound_to_optimizer(ctx, node):
                yield PrewrapReference(node, True)
                return
            outermost = node
        elif isinstance(node, (cst.BaseSmallStatement, cst.BaseCompoundStatement)):
            if _keeps(ctx, node, parameters):
                yield PrewrapReference(parameters if isinstance(node, cst.For) else outermost, False)
            return


def _keeps(ctx: Context, statement: cst.CSTNode, parameters: cst.Call | cst.Name) -> bool:
    """Whether a statement puts the parameters that it reads where they stay."""
    if is_walk(ctx, parameters):
        return _keeps_some(ctx, statement, parameters)
    if isinstance(statement, cst.AugAssign):
        return True
    if isinstance(statement, cst.Return):
        return statement.value is not None and is_kept(ctx, statement.value, parameters)
    if isinstance(statement, cst.Assign):
        targets = frozenset(place(each.target) for each in statement.targets)
        return is_kept(ctx, statement.value, parameters) and not are_ignored(ctx, targets)
    if isinstance(statement, cst.Expr):
        return is_collecting(statement.value) and not are_ignored(ctx, writes(statement))
    if isinstance(statement, cst.For):
        collected = frozenset(collected_in(ctx, statement))
        kept = bool(collected) and not are_ignored(ctx, collected)
        return kept or any(isinstance(inner, cst.Yield) for inner in ctx.inside(statement.body))
    return False


def _keeps_some(ctx: Context, statement: cst.CSTNode, modules: cst.Call | cst.Name) -> bool:
    """Whether a statement puts parameters of the modules that it goes over where they stay: `[m.weight for m in …]`."""
    if isinstance(statement, cst.For):
        return statement.iter is modules and any(collected_in(ctx, statement))
    around = [outer for outer in ctx.ancestors(modules) if isinstance(outer, cst.BaseComp)]
    return isinstance(statement, cst.Assign) and any(is_kept(ctx, each, modules) for each in around)


def _made_inside(ctx: Context, other: cst.Call, model: str, depth: int) -> Iterator[PrewrapReference]:
    """`optimizer, scheduler = set_up(model)`, `trainer = Trainer(model)`, `self.configure()`: what the program's own
    functions build from the parameters, and return or keep in their object."""
    for where, function, own in entered(ctx, other, model):
        places = own | aliases(where, function, own)
        can_move = only_reads(where, function, places)
        for inner in _built_in(where, function, places, depth):
            kept = frozenset({inner.name}) if inner.name else written_by(where, inner.call)
            outer = kept_outside(where, function, inner.call, kept, ctx, other)
            if outer is None:
                continue
            if outer:
                named = inner.is_optimizer and (bool(inner.name) or _is_bound(where, inner.call) or "[" in outer)
                yield PrewrapReference(other, named, outer, can_move and inner.can_move)
            elif inner.is_optimizer and is_returned(where, function, inner.call, kept):
                yield PrewrapReference(other, True, "", can_move and inner.can_move)
            else:
                yield from (replace(h, can_move=can_move and inner.can_move) for h in _reader(ctx, other))


def _built_in(ctx: Context, function: cst.FunctionDef, places: frozenset[str], depth: int) -> list[PrewrapReference]:
    """What one function builds from the parameters, and the optimizers that it builds from that."""
    calls = ctx.calls(function)
    if depth == 1 and not any(is_attribute(c.func, *READERS, *WALKS) or is_optimizer(ctx, c) for c in calls):
        return []
    found = [h for call in calls for model in sorted(places) for h in _holder(ctx, call, model, depth - 1)]
    kept = frozenset(name for holder in found if not holder.is_optimizer for name in written_by(ctx, holder.call))
    kept |= frozenset(_properties(ctx, function, places))
    known = {holder.call for holder in found if holder.is_optimizer}
    found += [PrewrapReference(call, True) for call in calls if call not in known and _is_made_of(ctx, call, kept)]
    return found


def _properties(ctx: Context, function: cst.FunctionDef, places: frozenset[str]) -> Iterator[str]:
    """`self.params` of a method's class, where `return list(self.net.parameters())` of a property gives it."""
    owner = enclosing(ctx, function, cst.ClassDef)
    for method in owner.body.body if owner is not None else ():
        if isinstance(method, cst.FunctionDef) and any(ctx.code(d.decorator) in _PROPERTY for d in method.decorators):
            given = (node for returned in returned_by(ctx, method) for node in ctx.inside(returned))
            models = {base(model) for node in given if (model := called_on(node, *READERS)) is not None}
            if models & places:
                yield f"self.{method.name.value}"


def _is_made_of(ctx: Context, call: cst.Call, kept: frozenset[str]) -> bool:
    return meets(reads(call), kept) and is_optimizer(ctx, call)


def _is_bound(ctx: Context, call: cst.BaseExpression) -> bool:
    holder = ctx.parent(call)
    while isinstance(holder, (cst.Element, cst.Tuple)):
        holder = ctx.parent(holder)
    return isinstance(holder, cst.Assign)
