"""What a function of the program does with the optimizer that it builds, and with the model beside that."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.places import assigned, base, bound, item, place, reads, writes
from codemods.reading.code.shapes import only_target
from codemods.reading.code.words import last_name
from codemods.reading.models.copies import copies
from codemods.reading.optimizers.makers import is_optimizer
from codemods.reading.own_fsdp2.shardings import is_fully_shard
from codemods.reading.parameters.of_model import READERS
from codemods.reading.wraps.manual import is_constructor
from codemods.tables.modules import GIVE_IT_BACK

from .entering import entered, items_of, object_of, returned_by
from .keeping import TENSORS, are_ignored, is_itself, passes_on

_READS = frozenset(
    [*READERS, "children", "modules", "named_children", "named_modules", "requires_grad_", "train", "eval"]
)
"""Methods of a model after which it shards as before."""
_LOOKS = frozenset({"len", "isinstance", "type", "hasattr", "getattr", "print", "id"})
_DOES = re.compile(r"(?:^|\.)_?(?:train|fit|run|eval|main|loop|step|backward|load|init|wrap|prepare)(?:_\w+)?$")
_DEPTH = 2
"""Into how many functions, one called by the other, is looked."""


def is_returned(ctx: Context, function: cst.FunctionDef, made: cst.BaseExpression, kept: frozenset[str]) -> bool:
    """`return optimizer`, `return model, optimizer`: not an object that has it somewhere."""
    for returned in returned_by(ctx, function):
        values = [returned]
        if isinstance(returned, (cst.Tuple, cst.List)):
            values = [element.value for element in returned.elements]
        if any(value is made or place(value) in kept for value in values):
            return True
    return False


def kept_outside(
    where: Context,
    function: cst.FunctionDef,
    made: cst.BaseExpression,
    kept: frozenset[str],
    ctx: Context,
    call: cst.Call,
) -> str | None:
    """Where the caller finds what a function makes and keeps: empty for what it returns, None where nothing stays."""
    kept = _carried(where, function, made, kept)
    stored = {each for each in kept if each.startswith("self.")}
    for node in where.inside(function.body):
        if isinstance(node, (cst.Assign, cst.Return)) and isinstance(node.value, cst.Call):
            if node.value is not made and is_optimizer(where, node.value):
                continue  # found by itself
        if isinstance(node, cst.Assign):
            passed = [target for target, value in assigned(node) if passes_on(where, value, kept, made)]
            stored |= {found for target in passed for found in bound(target) if found.startswith("self.")}
        elif isinstance(node, cst.Return) and node.value is not None:
            if passes_on(where, node.value, kept, made):
                return _as_an_item(where, function, node.value, kept, made, call, ctx)
        elif isinstance(node, cst.Yield):
            return ""
    found = object_of(ctx, function, call)
    return f"{found}{min(stored)[4:]}" if stored and found is not None else None


def _as_an_item(
    where: Context,
    function: cst.FunctionDef,
    returned: cst.BaseExpression,
    kept: frozenset[str],
    made: cst.BaseExpression,
    call: cst.Call,
    ctx: Context,
) -> str:
    """`built["optimizer"]` for what a function returns in a dict, or in a tuple that the caller takes as one thing."""
    target = only_target(ctx.parent(call))
    if not isinstance(target, cst.Name):
        return ""
    bound = where.bound(returned) if isinstance(returned, cst.Name) else None
    values = [returned, *(value for file, value in bound or () if file.path == where.path)]
    for key, value in (pair for each in values for pair in items_of(where, function, each)):
        if value is made or place(value) in kept:
            return f"{target.value}[{json.dumps(key)}]"
    return ""


def _carried(
    where: Context, function: cst.FunctionDef, made: cst.BaseExpression, kept: frozenset[str]
) -> frozenset[str]:
    """With the local names that it gets on its way: `groups` of `groups = [{"params": decay}]`."""
    for node in where.inside(function.body):
        for target, value in assigned(node) if isinstance(node, cst.Assign) else ():
            if passes_on(where, value, kept, made):
                kept |= {name for name in bound(target) if "." not in name}
    return kept


def only_reads(where: Context, function: cst.FunctionDef, places: frozenset[str], depth: int = _DEPTH) -> bool:
    """Whether a function does nothing to the model that would be something else after sharding."""
    for call in where.calls(function):
        if isinstance(call.func, cst.Attribute) and base(call.func.value) in places:
            if call.func.attr.value not in _READS:
                return False
        elif _DOES.search(where.code(call.func)):
            return False
        elif any(place(argument.value) in places for argument in call.args) and not is_optimizer(where, call):
            inner = [found for p in places for found in entered(where, call, p)]
            if inner and (not depth or not all(only_reads(*found, depth - 1) for found in inner)):
                return False
            if not inner and where.code(call.func) not in _LOOKS:
                return False
    return True


# Other names of a model, of its parts and of its parameters, from above a call.

_AROUND = frozenset({"checkpoint_wrapper", "compile", "convert_sync_batchnorm", "get_peft_model", "offload_wrapper"})
_AROUND |= {"prepare_model_for_kbit_training", "PeftModel"}
"""Functions of libraries that give a module with the same parameters."""


def other_names(ctx: Context, site: cst.Call, model: str) -> Iterator[tuple[str, bool]]:
    """`inner = net.cuda()`, which is all of the model; `head = net.head`, and `net` of `Around(net)`, parts of it."""
    links = list(_links_above(ctx, site))
    whole = [model]
    pairs = [(left, right) for left, right, is_same in links if is_same]
    for name in whole:  # grows
        whole += [other for pair in pairs if name in pair for other in pair if other not in whole]
    yield from ((name, True) for name in whole[1:])
    parts = [right for left, right, _ in links if left in whole]
    parts += [left for left, right, _ in links if any(right == name or right.startswith(f"{name}.") for name in whole)]
    yield from ((part, False) for part in dict.fromkeys(parts) if part not in whole)


def _links_above(ctx: Context, site: cst.Call) -> Iterator[tuple[str, str, bool]]:
    """Of each assignment above a call: its target, a place that it reads, and whether both are the same module."""
    scope, here = ctx.scope(site), ctx.span(site)[0]
    for node in ctx.nodes(cst.Assign):
        if ctx.scope(node) is not scope or ctx.span(node)[0] >= here:
            continue
        for target, value in assigned(node):
            left = place(target)
            if left is None or (isinstance(value, cst.Call) and _wraps(ctx, value)):
                continue  # what is wrapped already has the parameters that are trained
            same = _same_module(ctx, value) or item(value)
            if same is not None:
                yield left, same, True
            elif isinstance(value, cst.Call) and not _is_read(value) and not copies(ctx, value):
                yield from ((left, other, False) for other in sorted(reads(value)))


def _wraps(ctx: Context, call: cst.Call) -> bool:
    return is_constructor(ctx, call) or is_fully_shard(ctx, call.func)


def _same_module(ctx: Context, value: cst.BaseExpression) -> str | None:
    """The place of the module that an expression gives: `net.to(device)`, `torch.compile(net)`, `freeze(net)`."""
    while (found := place(value)) is None and isinstance(value, cst.Call):
        if isinstance(value.func, cst.Attribute) and value.func.attr.value in GIVE_IT_BACK:
            value = value.func.value
        elif value.args and (last_name(value.func) in _AROUND or _gives_back(ctx, value)):
            value = value.args[0].value
        else:
            return None
    return found


def _gives_back(ctx: Context, call: cst.Call) -> bool:
    """Whether a function of the program returns what it is given first."""
    given = {origin.node for origin in ctx.origins(call.args[0].value) if origin.node is not None}
    return bool(given & {origin.node for origin in ctx.origins(call)})


def _is_read(call: cst.Call) -> bool:
    """`net.parameters()`: no module."""
    return isinstance(call.func, cst.Attribute) and call.func.attr.value in READERS


def parameters_above(ctx: Context, site: cst.Call, model: str) -> Iterator[cst.BaseExpression]:
    """`kept = [net.head.weight]`, and the weight by itself, where an optimizer or something below the wrap uses it."""
    scope, (start, end) = ctx.scope(site), ctx.span(site)
    for node in ctx.nodes(cst.Assign):
        if ctx.scope(node) is not scope or ctx.span(node)[0] >= start:
            continue
        named = (each for each in ctx.inside(node.value) if _is_parameter(ctx, each, model))
        if any(_is_held(ctx, each, node.value) for each in named) and not are_ignored(ctx, writes(node)):
            if any(_collects(ctx, use) or (ctx.span(use)[0] > end and not _asks(ctx, use)) for use in ctx.uses(node)):
                yield node.value


def _is_parameter(ctx: Context, node: cst.CSTNode, model: str) -> bool:
    """`net.head.weight`, `getattr(net.head, "weight")` and `net.get_parameter("head.weight")`."""
    if isinstance(node, cst.Attribute):
        return node.attr.value in TENSORS and _is_in(node.value, model)
    if not isinstance(node, cst.Call):
        return False
    if isinstance(node.func, cst.Attribute):
        return node.func.attr.value == "get_parameter" and _is_in(node.func.value, model)
    named = [argument.value for argument in node.args[:2]]
    is_tensor = len(named) == 2 and isinstance(named[1], cst.SimpleString) and named[1].evaluated_value in TENSORS
    return ctx.code(node.func) == "getattr" and is_tensor and _is_in(named[0], model)


def _is_in(owner: cst.BaseExpression, model: str) -> bool:
    found = base(owner)
    return found is not None and (found == model or found.startswith(f"{model}."))


def _is_held(ctx: Context, parameter: cst.CSTNode, value: cst.BaseExpression) -> bool:
    """Whether a value is a parameter, or a display with it."""
    return parameter is value or (isinstance(value, _DISPLAYS) and is_itself(ctx, parameter, value))


_DISPLAYS = (cst.List, cst.Tuple, cst.Set, cst.Dict)


def _collects(ctx: Context, use: cst.Name) -> bool:
    """`AdamW([weight])`, `parameters = [weight]`."""
    for node in ctx.ancestors(use):
        if isinstance(node, (cst.List, cst.Dict, cst.Tuple)) or (
            isinstance(node, cst.Call) and is_optimizer(ctx, node)
        ):
            return True
        if isinstance(node, (cst.Call, cst.BaseSmallStatement)):
            return False
    return False


def _asks(ctx: Context, use: cst.Name) -> bool:
    """`weight.dtype`: what does not change."""
    outer = ctx.parent(use)
    return isinstance(outer, cst.Attribute) and outer.attr.value in {"device", "dtype", "ndim", "shape"}
