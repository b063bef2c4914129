"""Which calls make an optimizer.

By what is called: a class of torch's or of a known library, a class of the program that is one, a function of the
program that returns one. Only of what cannot be followed do the words of its name count.
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Origin
from codemods.reading.code.enclosing import call_given
from codemods.reading.code.once import once
from codemods.reading.code.words import last_name, words
from codemods.tables.optimizers import ALONE, BOUND, BY_DIMENSION, MODULES, NAMES, NOT_ONE, OTHERS

_DEPTH = 4
_SGD = frozenset({"torch.optim.SGD", "torch.optim.sgd.SGD"})


@once
def is_optimizer(ctx: Context, call: cst.Call) -> bool:
    """`torch.optim.AdamW(...)`, `getattr(torch.optim, name)(...)`, `build_optimizer(...)`; a scheduler is none."""
    return _makes(ctx, call, _DEPTH)


def is_named_optimizer(identifier: str) -> bool:
    """Whether a name says that it makes an optimizer, or holds one."""
    said = words(identifier)
    return bool(said & NAMES) and not said & NOT_ONE


def is_bound_to_optimizer(ctx: Context, call: cst.Call) -> bool:
    """`opt = make(net.parameters())`: what is made of parameters and called an optimizer is one."""
    holder = ctx.parent(call)
    targets = [each.target for each in holder.targets] if isinstance(holder, cst.Assign) else []
    return any(words(last_name(target)) & BOUND for target in targets)


def groups_by_dimension(ctx: Context, call: cst.Call) -> bool:
    """`timm.optim.param_groups_weight_decay(model)`, unless it is told to make no groups."""
    dotted = ctx.dotted(call.func) or ""
    if not dotted.startswith("timm.optim.") or last_name(call.func) not in BY_DIMENSION:
        return False
    named = {a.keyword.value: ctx.code(a.value) for a in call.args if a.keyword is not None}
    without = {"0", "0.", "0.0", None} if last_name(call.func) == "create_optimizer_v2" else {"0", "0.", "0.0"}
    return named.get("filter_bias_and_bn") != "False" and named.get("weight_decay") not in without


def is_stateless(optimizer: cst.BaseExpression, ctx: Context) -> bool:
    """Whether an optimizer can be `torch.optim.SGD` without momentum, which keeps nothing for a parameter."""
    made = [(o.file, o.node) for o in ctx.origins(optimizer) if isinstance(o.node, cst.Call)]
    return any(where.dotted(call.func) in _SGD and not _has_momentum(call) for where, call in made)


def _has_momentum(call: cst.Call) -> bool:
    """By position it is the third argument."""
    return len([a for a in call.args if a.keyword is None]) > 2 or any(
        a.star or (a.keyword is not None and a.keyword.value == "momentum") for a in call.args
    )


def optimizer_loaded(call: cst.Call, ctx: Context) -> cst.BaseExpression | None:
    """The optimizer that a call's result is loaded into: `state = f(…)`, then `optimizer.load_state_dict(state)`."""
    holder = ctx.parent(call)
    results: list[cst.BaseExpression] = [call]
    if isinstance(holder, cst.Assign) and len(holder.targets) == 1:
        results = list(ctx.uses(holder))
    found: dict[str, cst.BaseExpression] = {}
    for result in results:
        load = call_given(result, ctx)
        if load is None or not isinstance(load.func, cst.Attribute):
            continue
        owner = load.func.value
        plain = isinstance(owner, (cst.Name, cst.Attribute))
        if load.func.attr.value == "load_state_dict" and plain and ctx.same_meaning(owner, call):
            found[ctx.code(owner)] = owner
    return next(iter(found.values())) if len(found) == 1 else None


def _makes(ctx: Context, call: cst.Call, depth: int) -> bool:
    library = ctx.dotted(call.func)
    if library is not None:
        return _is_of_library(library)
    known = [_is_one(origin, depth) for origin in ctx.origins(call.func)]
    if any(known) or (known and all(answer is False for answer in known)):
        return any(known)
    return is_named_optimizer(last_name(call.func))


def _is_one(callee: Origin, depth: int) -> bool | None:
    """Whether calling this makes an optimizer; None where that is not seen."""
    ctx, node = callee.file, callee.node
    if isinstance(node, cst.ClassDef):
        return _is_optimizer_class(ctx, node, depth)
    if isinstance(node, cst.FunctionDef):
        return _returns_one(ctx, node, depth)
    if isinstance(node, cst.Lambda):
        return _makes(ctx, node.body, depth - 1) if depth and isinstance(node.body, cst.Call) else None
    if isinstance(node, (cst.Name, cst.Attribute)):
        library = ctx.dotted(node)
        return None if library is None else _is_of_library(library)
    if isinstance(node, cst.Call) and last_name(node.func) in {"getattr", "partial"} and node.args:
        library = ctx.dotted(node.args[0].value) or ""
        return True if library == "torch.optim" or _is_of_library(library) else None
    return None


@once
def _returns_one(ctx: Context, function: cst.FunctionDef, depth: int) -> bool | None:
    """By what a function returns, by itself or before other things; its name where that is not seen."""
    if not depth:
        return None
    returned = [n.value for n in ctx.nodes(cst.Return) if n.value is not None and ctx.scope(n) is function]
    parts = [part for value in returned for part in _parts(value)]
    made = [origin for part in parts for origin in ctx.origins(part)]
    if any(isinstance(o.node, cst.Call) and _makes(o.file, o.node, depth - 1) for o in made):
        return True
    is_seen = all(o.node is not None and not isinstance(o.node, (cst.Call, cst.Subscript)) for o in made)
    return False if is_seen or not is_named_optimizer(function.name.value) else None


def _parts(value: cst.BaseExpression) -> list[cst.BaseExpression]:
    """`optimizer` of `return optimizer, scheduler`: what comes behind something else is not what the call makes."""
    if isinstance(value, (cst.Tuple, cst.List)):
        return [element.value for element in value.elements[:1]]
    if isinstance(value, cst.Dict):
        return [element.value for element in value.elements]
    return [value]


@once
def _is_optimizer_class(ctx: Context, owner: cst.ClassDef, depth: int) -> bool | None:
    """Whether a class of the program inherits from an optimizer, or has the two methods by which one is known."""
    methods = {node.name.value for node in owner.body.body if isinstance(node, cst.FunctionDef)}
    if {"step", "zero_grad"} <= methods:
        return True
    bases = [_is_one(origin, depth - 1) for base in owner.bases for origin in ctx.origins(base.value)] if depth else []
    return True if any(bases) else None if None in bases else False


def _is_of_library(dotted: str) -> bool:
    name = dotted.rpartition(".")[2]
    if dotted.startswith(OTHERS):
        return False
    if dotted.startswith(ALONE):
        return True
    if dotted.startswith(MODULES):
        return dotted != "torch.optim" and not words(name) & NOT_ONE
    return is_named_optimizer(name)
