"""A branch for FSDP1's models beside one that the program has for FSDP2's: the first has nothing left to do."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context, Edit, ModelKind, Reference
from codemods.reading.code.enclosing import bound_once, upward
from codemods.reading.code.shapes import class_test, is_call_to
from codemods.tables.names import PACKAGE, WRAPPER

from ..code.enclosing import enclosing, is_self
from ..edits.layout import removal
from .asked_classes import is_only_true_or_false, without_class, without_test

_MODULE = "FSDPModule"
_SHARD = "fully_shard"


def without_own_branch(node: Reference, ctx: Context) -> Edit | None:
    """Takes away what is asked of FSDP1's class where FSDP2's is asked beside it; None where it is not.

    `node` is FSDP1's class in `isinstance(m, (FSDP, FSDPModule))`, in `if isinstance(m, FSDP):` with an `elif` or an
    `if` of the same chain for `FSDPModule`, or in `case FSDP():`.
    """
    holder = ctx.parent(node)
    if isinstance(holder, cst.Element):
        return _element(holder, ctx)
    if isinstance(holder, cst.MatchClass):
        return _case(holder, ctx)
    call = ctx.parent(holder) if isinstance(holder, cst.Arg) else None
    branch = ctx.parent(call) if isinstance(call, cst.Call) else None
    if not isinstance(branch, cst.If) or branch.test is not call or not isinstance(call, cst.Call):
        return None
    asked = ctx.code(call.args[0].value)
    others = (_asked_whole(each, ctx) for each in chain(branch, ctx) if each is not branch)
    return _branch(branch, ctx) if asked in others else None


def without_wrappers_branch(inner: cst.Attribute, ctx: Context) -> Edit | None:
    """Takes away `elif hasattr(m, "_fsdp_wrapped_module"):` around `m._fsdp_wrapped_module`, or such a loop: neither is
    met now.
    """
    for below, branch in upward(ctx, inner):
        if isinstance(branch, cst.FunctionDef):
            break
        is_around = isinstance(branch, (cst.If, cst.While)) and branch.body is below
        if isinstance(branch, cst.While) and is_around and _asks_for(branch.test, inner, ctx):
            return removal(ctx, branch) if branch.orelse is None else None
        if isinstance(branch, cst.If) and is_around and _asks_for(branch.test, inner, ctx):
            is_first = not isinstance(ctx.parent(branch), cst.If)
            if is_first and branch.orelse is None:
                return removal(ctx, branch)
            return None if is_first and isinstance(branch.orelse, cst.Else) else _branch(branch, ctx)
    return None


def _asks_for(test: cst.BaseExpression, inner: cst.Attribute, ctx: Context) -> bool:
    if not is_call_to(test, "hasattr") or len(test.args) != 2:
        return False
    model, name = (argument.value for argument in test.args)
    is_name = isinstance(name, cst.SimpleString) and name.evaluated_value == inner.attr.value
    return is_name and ctx.code(model) == ctx.code(inner.value)


def answered(node: Reference, ctx: Context) -> Edit | None:
    """What becomes of a test for FSDP1's class of a model that is FSDP2's already, and is False; None for any other.

    It has to stay False: what it lets in is for FSDP1, and the program has its own for FSDP2.
    """
    holder = ctx.parent(node)
    element = holder if isinstance(holder, cst.Element) else None
    while isinstance(holder, (cst.Element, cst.Tuple)):
        holder = ctx.parent(holder)
    call = ctx.parent(holder) if isinstance(holder, cst.Arg) else None
    asked = class_test(call, ctx)
    if call is None or asked is None or not is_of_fsdp2(asked[0], ctx):
        return None
    if element is not None:
        return without_class(ctx, node)
    branch = ctx.parent(call)
    if isinstance(branch, cst.If) and branch.orelse is None and not isinstance(ctx.parent(branch), cst.If):
        return removal(ctx, branch)
    shorter = without_test(ctx, call) if is_only_true_or_false(ctx, call) else None
    return shorter or Edit(*ctx.bare_span(call), "False")


def choice_without(node: cst.BaseExpression, ctx: Context) -> Edit | None:
    """What becomes of `node if is_fsdp else other` with `is_fsdp = isinstance(model, FSDP)`, where that stays False."""
    choice = ctx.parent(node)
    if not isinstance(choice, cst.IfExp) or choice.body is not node or not isinstance(choice.test, cst.Name):
        return None
    test = bound_once(ctx, choice.test)
    if not isinstance(test, cst.Call) or len(test.args) != 2:
        return None
    kind = test.args[1].value
    if not isinstance(kind, (cst.Name, cst.Attribute)) or ctx.fsdp1(kind) != WRAPPER or answered(kind, ctx) is None:
        return None
    is_line = "\n" not in ctx.code(choice.orelse)
    return Edit(*(ctx.span if is_line else ctx.bare_span)(choice), ctx.quote(choice.orelse))


def is_of_fsdp2(model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether no constructor call makes a model, and the program's own `fully_shard` shards it."""
    is_asked = any(_asks_module(each, model, ctx) for each in ctx.nodes(cst.Call))
    if not is_asked and not _hands_sharded_on(ctx):
        return False  # before the model is followed through the program
    if ModelKind.FSDP in ctx.kinds(model):
        return False
    return is_asked or any(_is_sharding(origin.node, origin.file) for origin in ctx.origins(model))


_SHARDING = frozenset({f"{PACKAGE}.{_SHARD}", f"torch.distributed._composable.fsdp.{_SHARD}"})


def _is_sharding(node: cst.CSTNode | None, ctx: Context) -> bool:
    return isinstance(node, cst.Call) and ctx.dotted(node.func) in _SHARDING


def _hands_sharded_on(ctx: Context) -> bool:
    """Whether the program takes a model from what `fully_shard` gives back: `model = fully_shard(model)`."""
    calls = ((file, call) for file in ctx.files(_SHARD) for call in file.nodes(cst.Call))
    return any(not isinstance(file.parent(call), cst.Expr) and _is_sharding(call, file) for file, call in calls)


def _asks_module(call: cst.Call, model: cst.BaseExpression, ctx: Context) -> bool:
    """`isinstance(model, FSDPModule)` of the same model: in the same function, or of `self.model` in the same class."""
    asked, kind = class_test(call, ctx) or (call, call)
    if ctx.code(asked) != ctx.code(model) or not _is_module(kind, ctx):
        return False
    owner = cst.ClassDef if isinstance(model, cst.Attribute) and is_self(model.value, ctx) else cst.FunctionDef
    around = enclosing(ctx, model, owner)
    return around is not None and enclosing(ctx, asked, owner) is around


def _element(element: cst.Element, ctx: Context) -> Edit | None:
    classes = ctx.parent(element)
    if not isinstance(classes, cst.Tuple) or not any(_is_module(each.value, ctx) for each in classes.elements):
        return None
    return without_class(ctx, element.value)


def _case(pattern: cst.MatchClass, ctx: Context) -> Edit | None:
    case = ctx.parent(pattern)
    match = ctx.parent(case) if isinstance(case, cst.MatchCase) else None
    if not isinstance(match, cst.Match) or not isinstance(case, cst.MatchCase) or not _is_bare(case):
        return None
    others = (each.pattern for each in match.cases if each is not case and _is_bare(each))
    if not any(isinstance(other, cst.MatchClass) and _is_module(other.cls, ctx) for other in others):
        return None
    return Edit(*ctx.whole_lines(case), "")


def _is_bare(case: cst.MatchCase) -> bool:
    """Whether it asks for a class, and nothing else."""
    pattern = case.pattern
    return case.guard is None and isinstance(pattern, cst.MatchClass) and not (pattern.patterns or pattern.kwds)


def chain(branch: cst.If, ctx: Context) -> Iterator[cst.If]:
    """The `if` and each `elif` of it."""
    first: cst.CSTNode = branch
    while isinstance(ctx.parent(first), cst.If):
        first = ctx.parent(first) or first
    each: cst.CSTNode | None = first
    while isinstance(each, cst.If):
        yield each
        each = each.orelse


def _asked_whole(branch: cst.If, ctx: Context) -> str | None:
    """The model of `if isinstance(model, FSDPModule):`."""
    asked = class_test(branch.test, ctx)
    return ctx.code(asked[0]) if asked is not None and _is_module(asked[1], ctx) else None


def _branch(branch: cst.If, ctx: Context) -> Edit:
    """The branch goes; where it is the first, the next one begins the chain."""
    start = ctx.span(branch)[0]
    if not isinstance(ctx.parent(branch), cst.If):
        following = cst.ensure_type(branch.orelse, cst.If)
        return Edit(start, ctx.span(following)[0] + len("elif"), "if")
    end = ctx.whole_lines(branch)[1] if branch.orelse is None else ctx.whole_lines(branch.orelse)[0]
    return Edit(ctx.whole_lines(branch)[0], end, "")


def _is_module(node: cst.BaseExpression, ctx: Context) -> bool:
    return (ctx.dotted(node) or "").endswith(f".{_MODULE}")
