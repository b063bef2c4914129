"""Reading `model.load_state_dict(state, strict=False)`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context, NotStatic
from codemods.reading.code.arguments import by_parameter
from codemods.reading.models.class_layout import model_classes
from codemods.reading.models.makeup import makeup
from codemods.reading.state_dicts.by_class import own_arguments
from codemods.reading.wraps.flat_parameters import constructor_calls
from codemods.tables.state_dicts import FULL, FULL_LOAD

PAST_OWN = "load_past_own_method"
"""The support function that loads past a method of the model's own."""
METHOD = "load_state_dict"
_ORDER = ("state_dict", "strict")


@dataclass(frozen=True)
class Loading:
    """What is loaded, and how strictly."""

    state: cst.BaseExpression
    strict: cst.Arg | None
    is_lenient: bool
    """Whether `strict` is anything but True: other keys may be missing or not known."""
    result_is_used: bool
    is_read_again: bool
    """Whether the program may look at the state dict afterwards, or load it into another model."""


def loading(call: cst.Call, ctx: Context) -> Loading:
    """Raises NotStatic for arguments that only `torch.nn.Module.load_state_dict` has."""
    given = own_arguments(call, ctx)
    found = by_parameter(given, _ORDER)
    if found is None or not found.keys() <= set(_ORDER):
        raise NotStatic("load_state_dict takes arguments that the new function does not have")
    if "state_dict" not in found or given[0] is not found["state_dict"]:
        raise NotStatic("load_state_dict does not take the state dict first")
    strict = found.get("strict")
    lenient = strict is not None and ctx.code(strict.value) != "True"
    state = found["state_dict"].value
    is_used = not isinstance(ctx.parent(call), cst.Expr)
    return Loading(state, strict, lenient, is_used, is_read_again(state, call, ctx))


def options_to_load(load: Loading, model: cst.BaseExpression, options: str, ctx: Context) -> str:
    """Without the first rank's broadcast where a rank may have kept statistics of its own, which FSDP1 gave it back."""
    is_own = options == FULL_LOAD and load.is_read_again and _has_statistics(model, ctx)
    return FULL if is_own else options


def _has_statistics(model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a model is seen to hold BatchNorm: each rank's has seen other batches, if it is not a SyncBatchNorm."""
    made = [makeup(where, call) for where, call in constructor_calls(model, ctx)]
    names = {name.rpartition(".")[2] for each in made for name in each.from_libraries}
    is_synced = any("SyncBatchNorm" in name for name in names) or ctx.mentions("convert_sync_batchnorm")
    return not is_synced and any("BatchNorm" in name for name in names)


def has_own_method(model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether the class of what a model wraps is seen to have a `load_state_dict` of its own: the wrapper, which has
    torch's, went past it. FSDP2's model has the method, and need not take what torch's functions give it."""
    if not ctx.defines(METHOD):
        return False
    # Of a model that nobody is seen to pass, any that the program wraps can be meant.
    calls = constructor_calls(model, ctx) or ctx.wrapping.calls(ctx.path)
    classes = (found for where, call in calls for found in model_classes(where, call))
    return any(
        isinstance(node, cst.FunctionDef) and node.name.value == METHOD
        for _, owner in classes
        for node in owner.body.body
    )


# Whether a value that is handed to a call is looked at afterwards, by whatever name the program still has for it.

_ITEMS = frozenset({"items", "values"})
_WALKS = frozenset({"enumerate", "list", "reversed", "sorted", "zip"})
_DEPTH = 4
"""How many names and calls of functions a value is followed through."""


def is_read_again(value: cst.BaseExpression, call: cst.Call, ctx: Context, depth: int = _DEPTH) -> bool:
    """False where the value is made in the call, or has a name that ends there; unseen callers are not supposed to."""
    name, is_kept = _first(value)
    if name is None:  # `[self.best if rank == 0 else None]`
        return any(is_read_again(part, call, ctx, depth - 1) for part in _parts(value) if depth)
    if is_kept or depth == 0 or _is_named_below(value, name, call, ctx):
        return True
    scope = ctx.scope(call)
    made = [node for node in ctx.nodes(cst.Assign) if ctx.scope(node) is scope and _binds(node, name)]
    if any(_is_outside_of_loop(node, value, call, ctx) for node in made):
        return True
    handed = [(node.value, call, ctx) for node in made]
    handed += [(held, call, ctx) for held in _looped_over(name, call, ctx) if not made]
    handed += [(given, outer, where) for where, outer, given in ctx.passed_to(call, name.value) if not made]
    return any(is_read_again(given, outer, where, depth - 1) for given, outer, where in handed)


def _first(value: cst.BaseExpression) -> tuple[cst.Name | None, bool]:
    """`state` of `state["model"]`, and whether an object keeps the value: `self.best`."""
    is_kept = False
    while isinstance(value, (cst.Attribute, cst.Subscript)):
        is_kept = is_kept or isinstance(value, cst.Attribute)
        value = value.value
    return (value if isinstance(value, cst.Name) else None), is_kept


def _parts(value: cst.BaseExpression) -> list[cst.BaseExpression]:
    """What a list holds, and what a conditional expression gives."""
    if isinstance(value, cst.IfExp):
        return [value.body, value.orelse]
    return [each.value for each in value.elements] if isinstance(value, (cst.List, cst.Tuple)) else []


def _binds(assignment: cst.Assign, name: cst.Name) -> bool:
    """`state = …`, `states[0] = …`, and `step, state = …`."""
    targets = [target.target for target in assignment.targets]
    several = (
        each.value for target in targets if isinstance(target, (cst.Tuple, cst.List)) for each in target.elements
    )
    bound = [target.value if isinstance(target, cst.Subscript) else target for target in (*targets, *several)]
    return any(isinstance(each, cst.Name) and each.value == name.value for each in bound)


def _is_named_below(value: cst.BaseExpression, name: cst.Name, call: cst.Call, ctx: Context) -> bool:
    """Whether the value, a part of it or what holds it stands below: not `state["step"]` for `state["model"]`."""
    text, end = ctx.code(value), ctx.span(call)[1]
    below = [n for n in ctx.nodes(cst.Name) if n.value == name.value and ctx.span(n)[0] > end]
    return any(other.startswith(text) or text.startswith(other) for node in below for other in _texts(node, call, ctx))


def _texts(node: cst.Name, call: cst.Call, ctx: Context) -> Iterator[str]:
    """What a name below the call stands in, such as `state["step"]`."""
    if ctx.scope(node) is not ctx.scope(call) or _is_on_other_way(node, call, ctx):
        return
    whole: cst.CSTNode = node
    holder = ctx.parent(whole)
    while isinstance(holder, (cst.Attribute, cst.Subscript)) and holder.value is whole:
        whole, holder = holder, ctx.parent(holder)
    if not isinstance(holder, (cst.Del, cst.AssignTarget)):
        yield ctx.code(whole)


def _is_on_other_way(node: cst.CSTNode, call: cst.Call, ctx: Context) -> bool:
    """Whether an `if` leads to the call and its `else` to the other, so that one turn never comes to both."""
    here, there = set(ctx.ancestors(call)), set(ctx.ancestors(node))
    choices = [branch for branch in here & there if isinstance(branch, cst.If)]
    return any(branch.body in here and branch.orelse in there for branch in choices)


def _is_outside_of_loop(assignment: cst.Assign, value: cst.BaseExpression, call: cst.Call, ctx: Context) -> bool:
    """Whether a loop comes to the call several times with the one value, and not with another item: `states[key]`."""
    around = list(ctx.ancestors(assignment))
    for loop in ctx.ancestors(call):
        if not isinstance(loop, (cst.For, cst.While)) or ctx.scope(loop) is not ctx.scope(call) or loop in around:
            continue
        if isinstance(loop, cst.While) or not _names(loop.target, ctx) & _names(value, ctx):
            return True
    return False


def _looped_over(name: cst.Name, call: cst.Call, ctx: Context) -> Iterator[cst.BaseExpression]:
    """`saved` of `for state in saved:` and of `for key, state in saved.items():`, around the call."""
    for loop in ctx.ancestors(call):
        if isinstance(loop, cst.For) and ctx.scope(loop) is ctx.scope(call) and name.value in _names(loop.target, ctx):
            yield from _held_in(loop.iter)


def _held_in(value: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What keeps the items of a loop: a name, an attribute, its `.values()`, and what `zip` or `enumerate` is given."""
    if isinstance(value, (cst.Name, cst.Attribute, cst.Subscript)):
        yield value
    elif isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value in _ITEMS:
        yield from _held_in(value.func.value)
    elif isinstance(value, cst.Call) and isinstance(value.func, cst.Name) and value.func.value in _WALKS:
        for argument in value.args:
            yield from _held_in(argument.value)


def _names(node: cst.CSTNode, ctx: Context) -> set[str]:
    return {inner.value for inner in ctx.inside(node) if isinstance(inner, cst.Name)}
