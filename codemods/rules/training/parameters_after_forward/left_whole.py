"""Where parameters of a model are taken, or frozen, that may be as its last evaluation left them, whole."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.code.call_order import yields
from codemods.reading.code.enclosing import enclosing, is_inside
from codemods.reading.code.shapes import called_on, is_attribute, only_target
from codemods.reading.forwards.after_forward import holds_copies, runs_before
from codemods.reading.forwards.calls import GRAD_MODES, runs
from codemods.reading.models.parts import wrapped_around
from codemods.reading.optimizers.makers import is_optimizer
from codemods.reading.parameters.of_model import READERS
from codemods.tables.names import SUMMON

FREEZE = "requires_grad_"
_ADD_GROUP = "add_param_group"
_SAME = frozenset({"ndim", "nelement", "numel", "requires_grad", "shape", "size"})


def taken_after_forward(call: cst.Call, ctx: Context) -> tuple[cst.BaseExpression, cst.CSTNode] | None:
    """The model that a call takes parameters of, or freezes, behind an evaluation; and where it has to be resharded.

    `model.head.parameters()` and `for m in model.modules(): m.parameters()` for an optimizer, or to set
    `requires_grad`; `model.requires_grad_(False)`, `model.head.requires_grad_(True)`.
    """
    model = _taken(call, ctx)
    if model is None or is_inside(call, SUMMON, ctx.code(model), ctx):
        return None
    trained = is_for_optimizer(call, ctx)
    if not trained and not ctx.mentions(*GRAD_MODES, "detach"):
        return None
    if not holds_copies(call, model, ctx) and not (trained and runs_before(call, model, ctx)):
        return None
    return None if _is_second(call, model, ctx) else (model, _place(call, model, ctx))


def _taken(call: cst.Call, ctx: Context) -> cst.BaseExpression | None:
    """The model around what gives its parameters, or is frozen; not what a loop calls them: it is given them."""
    part, frozen = called_on(call, *READERS, FREEZE), called_on(call, FREEZE)
    where, model = (wrapped_around(part, ctx) if part is not None else None) or (None, part)
    while is_attribute(model, "module") and ModelKind.FSDP in ctx.kinds(model.value):
        model = model.value  # what is run is `model`
    if where is not ctx or not isinstance(model, (cst.Name, cst.Attribute, cst.Subscript)):
        return None
    if ctx.scope(model) is not ctx.scope(call):
        return None
    if frozen is None and not is_for_optimizers(call, ctx) and not _freezes(call, ctx):
        return None
    if is_same_of_copies(call, ctx):
        return None
    heads = (node for loop in _loops(call, ctx) for node in ctx.inside(loop.iter))
    return model if frozen is None or not any(called_on(node, *READERS) for node in heads) else None


def is_same_of_copies(call: cst.Call, ctx: Context) -> bool:
    """Whether no more is asked of the parameters than what their copies say as well.

    `sum(p.numel() for p in model.parameters() if p.requires_grad)`. `next(model.parameters()).device`, by a name too:
    copies lie where the shards do, but for a model that is offloaded.
    """
    same = _SAME if ctx.mentions("CPUOffload") else {*_SAME, "device"}
    loop = ctx.parent(call)
    if isinstance(loop, cst.CompFor) and loop.iter is call and isinstance(loop.target, cst.Name):
        around = ctx.parent(loop)
        named = [node for node in ctx.inside(around or loop) if isinstance(node, cst.Name) and node is not loop.target]
        return all(_is_asked_for(same, node, ctx) for node in named if node.value == loop.target.value)
    taken = ctx.parent(loop) if isinstance(loop, cst.Arg) else None
    if not isinstance(taken, cst.Call) or not isinstance(taken.func, cst.Name) or taken.func.value != "next":
        return False
    holder = ctx.parent(taken)
    is_named = isinstance(holder, cst.Assign) and isinstance(only_target(holder), cst.Name)
    uses = ctx.uses(holder) if is_named and holder is not None else [taken]
    return bool(uses) and all(_is_asked_for(same, each, ctx) for each in uses)


def _is_asked_for(names: Collection[str], value: cst.CSTNode, ctx: Context) -> bool:
    holder = ctx.parent(value)
    return isinstance(holder, cst.Attribute) and holder.value is value and holder.attr.value in names


def _place(call: cst.Call, model: cst.BaseExpression, ctx: Context) -> cst.CSTNode:
    """The call, or what the outermost loop goes over that the model is named by."""
    around = [loop.iter for loop in _loops(call, ctx) if any(node is model for node in ctx.inside(loop.iter))]
    return around[-1] if around else call


def is_for_optimizers(call: cst.Call, ctx: Context) -> bool:
    """Whether an optimizer is made of what a call returns, or in the same function, or of what that gives back."""
    if is_for_optimizer(call, ctx):
        return True
    scope = ctx.scope(call)
    if not isinstance(scope, cst.FunctionDef):
        return False
    if any(is_optimizer(ctx, other) for other in ctx.calls(scope)):
        return True
    return any(is_for_optimizer(other, where) for where, other in ctx.callers(call))


def is_for_optimizer(call: cst.Call, ctx: Context) -> bool:
    """Whether an optimizer is given what the call returns, by way of a variable too."""
    holder = enclosing(ctx, call, cst.Assign)
    given = [call, *(ctx.uses(holder) if holder is not None else ())]
    calls = (outer for each in given for outer in ctx.ancestors(each) if isinstance(outer, cst.Call))
    return any(is_optimizer(ctx, outer) or is_attribute(outer.func, _ADD_GROUP) for outer in calls)


def _freezes(call: cst.Call, ctx: Context) -> bool:
    """`for p in model.parameters(): p.requires_grad = False`."""
    loop = next(_loops(call, ctx), None)
    return loop is not None and any(_sets_flag(node, ctx) for node in ctx.inside(loop.body))


def _sets_flag(node: cst.CSTNode, ctx: Context) -> bool:
    if not isinstance(node, cst.Attribute):
        return False
    is_set = node.attr.value == "requires_grad" and isinstance(ctx.parent(node), cst.AssignTarget)
    return is_set or node.attr.value == FREEZE


def _is_second(call: cst.Call, model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether the same is done above, on each way to here, and the model does not run in between: in the block of a
    context manager it may.
    """
    name, start, outer = ctx.code(model), ctx.span(call)[0], set(ctx.ancestors(call))
    first = max((end for _, end in map(ctx.span, yields(ctx.scope(call), ctx)) if end <= start), default=0)
    ended = [other for other in ctx.calls(ctx.scope(call)) if ctx.span(other)[1] <= start]
    above = [other for other in ended if ctx.span(other)[0] >= first]
    for index, other in enumerate(above):
        same = _taken(other, ctx)
        if same is not None and ctx.code(same) == name and _block(_place(other, same, ctx), ctx) in outer:
            return not any(runs(later, name, ctx) for later in above[index:])
    return False


def _block(node: cst.CSTNode, ctx: Context) -> cst.CSTNode | None:
    return next((outer for outer in ctx.ancestors(node) if isinstance(outer, (cst.IndentedBlock, cst.Module))), None)


def _loops(call: cst.Call, ctx: Context) -> Iterator[cst.For]:
    return (outer for outer in ctx.ancestors(call) if isinstance(outer, cst.For))
