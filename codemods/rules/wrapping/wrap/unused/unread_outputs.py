"""Outputs of a model that do not enter its loss: the layers that give them get no gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.code.enclosing import is_without_gradients
from codemods.reading.code.places import bound, place
from codemods.reading.code.shapes import key_of, only_target
from codemods.reading.code.words import last_name
from codemods.reading.models.class_layout import model_classes
from codemods.reading.parameters.lists import heads

from .held_layers import Method, layers_and_methods

_VALUES_ALONE = frozenset({"detach", "item", "tolist", "shape", "dtype", "device"})

_Output = int | str
"""The second of `return logits, value` is 1; `return {"value": value}` and `return Out(value=value)` have 'value'."""


def leaves_outputs(ctx: Context, call: cst.Call) -> bool:
    """`logits, _ = model(x)`, where a layer of the model gives the second output and nothing else."""
    owners = list(model_classes(ctx, call))
    outputs = {output for owner in owners for output in _of_one_layer(*owner)}
    if outputs and any(_is_left(output, run, where) for where, run in _training_runs(ctx) for output in outputs):
        return True
    return any(_keeps_for_some(*owner) for owner in owners)


def _keeps_for_some(ctx: Context, owner: cst.ClassDef) -> bool:
    """`self.aux_loss = self.probe(x).mean()` in `forward`, which the program reads in some steps alone."""
    alone, forward = _used_once(ctx, owner)
    if forward is None:
        return False
    where = forward.ctx
    for node in where.inside(forward.node.body):
        target = only_target(node) if isinstance(node, cst.Assign) else None
        is_kept = isinstance(target, cst.Attribute) and place(target) == f"self.{target.attr.value}"
        if isinstance(node, cst.Assign) and is_kept and not alone.isdisjoint(_layers(node.value, where)):
            name = cst.ensure_type(target, cst.Attribute).attr.value
            reads = [
                (at, each) for at, each in ctx.attributes(name) if not isinstance(at.parent(each), cst.AssignTarget)
            ]
            if reads and all(_is_chosen(each, at) for at, each in reads):
                return True
    return False


def _is_chosen(read: cst.Attribute, ctx: Context) -> bool:
    outer = takewhile(lambda node: not isinstance(node, cst.FunctionDef), ctx.ancestors(read))
    return any(isinstance(node, (cst.If, cst.IfExp)) for node in outer)


def _used_once(ctx: Context, owner: cst.ClassDef) -> tuple[set[str], Method | None]:
    """The layers that a class uses in one place, and its `forward`."""
    layers, methods = layers_and_methods(ctx, owner)
    used = {layer: sum(len(each.uses_of(layer)) for each in methods.values()) for layer in layers}
    return {layer for layer, uses in used.items() if uses == 1}, methods.get("forward")


def _of_one_layer(ctx: Context, owner: cst.ClassDef) -> Iterator[_Output]:
    """The outputs of `forward` that come from a layer which is used for nothing else."""
    alone, forward = _used_once(ctx, owner)
    if forward is None:
        return
    where = forward.ctx
    for node in where.inside(forward.node.body):
        if isinstance(node, cst.Return) and node.value is not None and where.scope(node) is forward.node:
            parts = _parts(_made(node.value, where))
            yield from (output for output, value in parts if not alone.isdisjoint(_layers(value, where)))


def _made(returned: cst.BaseExpression, ctx: Context) -> cst.BaseExpression:
    """The dict of `losses = {…}` behind `return losses`."""
    bound = (ctx.bound(returned) or ()) if isinstance(returned, cst.Name) else ()
    return bound[0][1] if len(bound) == 1 else returned


def _parts(returned: cst.BaseExpression) -> Iterator[tuple[_Output, cst.BaseExpression]]:
    if isinstance(returned, cst.Tuple):
        yield from enumerate(element.value for element in returned.elements)
    elif isinstance(returned, cst.Dict):
        for element in returned.elements:
            if isinstance(element, cst.DictElement) and isinstance(element.key, cst.SimpleString):
                yield str(element.key.evaluated_value), element.value
    elif isinstance(returned, cst.Call) and last_name(returned.func)[:1].isupper():
        for argument in returned.args:
            if argument.keyword is not None:
                yield argument.keyword.value, argument.value


def _layers(value: cst.BaseExpression, ctx: Context) -> Iterator[str | None]:
    """`self.value` of `self.value(x).squeeze(-1)`, also by a name that has no other use."""
    if isinstance(value, cst.Name):
        bound = ctx.bound(value) or ()
        statement = ctx.parent(bound[0][1]) if len(bound) == 1 else None
        is_only_use = isinstance(statement, cst.Assign) and _reads(statement, ctx) == [value]
        value = bound[0][1] if is_only_use else value
    yield from (place(node) for node in ctx.inside(value) if isinstance(node, cst.Attribute))


def _training_runs(ctx: Context) -> Iterator[tuple[Context, cst.Call]]:
    for where in ctx.files("backward"):
        for call in where.nodes(cst.Call):
            if ModelKind.FSDP in where.kinds(call.func) and not is_without_gradients(call, where):
                yield where, call


def _is_left(output: _Output, run: cst.Call, ctx: Context) -> bool:
    """Whether what a run gives is read without this output, or with it under a condition."""
    holder = ctx.parent(run)
    if isinstance(holder, (cst.Subscript, cst.Attribute)):
        return _taken(holder, ctx) not in {None, output}
    if not isinstance(holder, cst.Assign) or len(holder.targets) != 1:
        return False
    target, uses = holder.targets[0].target, _reads(holder, ctx)
    if isinstance(target, cst.Tuple) and isinstance(output, int) and output < len(target.elements):
        name = place(target.elements[output].value)
        return name is not None and not _is_trained([use for use in uses if use.value == name], run, ctx)
    if not isinstance(target, cst.Name) or not uses:
        return False
    read = [ctx.parent(use) for use in uses]
    taken = [(each, _taken(each, ctx)) for each in read if isinstance(each, (cst.Subscript, cst.Attribute))]
    if any(_is_chosen_by_name(each, target, ctx) for each, _ in taken):
        return True
    is_seen = len(taken) == len(read) and all(part is not None for _, part in taken)
    return is_seen and not _is_trained([each for each, part in taken if part == output], run, ctx)


def _reads(statement: cst.Assign, ctx: Context) -> list[cst.Name]:
    """The uses of what a statement binds; in a loop, its own targets are among them."""
    return [use for use in ctx.uses(statement) if statement.targets[0] not in ctx.ancestors(use)]


def _is_chosen_by_name(part: cst.Subscript | cst.Attribute, taken: cst.Name, ctx: Context) -> bool:
    """`losses[name] for name in names`, where `names` are not all that there are."""
    index = part.slice[0].slice if isinstance(part, cst.Subscript) and len(part.slice) == 1 else None
    name = index.value if isinstance(index, cst.Index) else None
    loops = [node for node in ctx.ancestors(part) if isinstance(node, (cst.For, cst.BaseComp))]
    overs = [
        head.iter
        for loop in loops
        for head in heads(loop)
        if isinstance(name, cst.Name) and name.value in set(bound(head.target))
    ]
    return any(place(over) not in {None, taken.value} for over in overs)


def _taken(part: cst.Subscript | cst.Attribute, ctx: Context) -> _Output | None:
    if isinstance(part, cst.Attribute):
        return None if isinstance(ctx.parent(part), cst.Call) else part.attr.value
    key = key_of(part)
    index = part.slice[0].slice if len(part.slice) == 1 else None
    if key is None and isinstance(index, cst.Index) and isinstance(index.value, cst.Integer):
        return index.value.evaluated_value
    return key


def _is_trained(uses: Sequence[cst.CSTNode], run: cst.Call, ctx: Context) -> bool:
    """Whether one of the uses of an output is of its gradient, and in each step."""
    around = set(ctx.ancestors(run))
    for use in uses:
        holder = ctx.parent(use)
        asks_alone = isinstance(holder, cst.Attribute) and holder.attr.value in _VALUES_ALONE
        is_chosen = any(isinstance(outer, (cst.If, cst.IfExp)) and outer not in around for outer in ctx.ancestors(use))
        if not asks_alone and not is_chosen:
            return True
    return False
