"""Where `zero_grad` dropped gradients that no synchronised backward had followed.

FSDP1 kept them in `.grad`. FSDP2 keeps them where no `zero_grad` reaches, and adds them to the next step: an epoch that
ends between two synchronisations changes the next one (last loss 3.045851 before, 2.152269 after, measured on torch
2.13). Behind an optimizer's step there are none: what steps was synchronised, FSDP1 fails otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Import, ModelKind, NotStatic
from codemods.reading.code.enclosing import upward
from codemods.reading.code.facts import NOTHING, Facts
from codemods.reading.code.once import once
from codemods.reading.code.onward import Way
from codemods.reading.code.program import others
from codemods.reading.code.shapes import called_on, front
from codemods.reading.code.words import is_name, last_name, words
from codemods.reading.forwards.calls import is_backward
from codemods.tables.optimizers import BOUND

_LINES = (cst.SimpleStatementLine, cst.SimpleStatementSuite)
_SIMPLE = (*_LINES, cst.BaseSmallStatement)


@dataclass(frozen=True)
class Unsynced:
    """The backward passes of one `no_sync`, which leave gradients that no rank has but this one."""

    model: cst.BaseExpression
    starts: Sequence[cst.CSTNode]
    facts: Facts = NOTHING
    """What is true of a turn that has one."""
    last_turns: frozenset[cst.CSTNode] = frozenset()


def drops_behind(left: Unsynced, ctx: Context) -> list[tuple[Context, cst.CSTNode]]:
    """Each `zero_grad`, in whatever file, that can be the next that such gradients come to."""
    models = _accumulating(left.model, ctx)
    way = Way(lambda node, where: _drops(node, where, models), _steps, last_turns=left.last_turns)
    for start in left.starts:
        way.behind(start, ctx, left.facts)
    for where, function in way.lost:
        way.passes(function, where)
    lost = [function for _, function in way.lost]
    unseen = [each for where, _ in way.lost for each in _of_others(where, lost, models)]
    return [*dict.fromkeys([*way.found, *unseen])]


def discard_gradients(left: Unsynced, ctx: Context) -> tuple[list[Edit], list[Import]]:
    """The edits that drop the model's unsynchronised gradients behind each `zero_grad` that dropped them so far.

    Another file's are its own to write. Raises `NotStatic` where a `zero_grad` is not seen, or the model is not known
    beside it.
    """
    edits, imports = [], []
    for where, call in drops_behind(left, ctx):
        if not isinstance(call, cst.Call):
            raise NotStatic("`.grad` is set by hand")
        if where is not ctx:
            if model_beside(call, where) is None:
                raise NotStatic(f"{where.path.name} calls zero_grad")
            continue
        model = left.model if _is_known(left.model, call, ctx) and not _is_model(call, ctx) else model_beside(call, ctx)
        if not isinstance(ctx.parent(call), cst.Expr) or model is None:
            raise NotStatic(f"`{ctx.code(call)}` drops them")
        edit, item = discard(call, model, ctx)
        edits.append(edit)
        imports.append(item)
    return edits, imports


def discard(call: cst.Call, model: cst.BaseExpression, ctx: Context) -> tuple[Edit, Import]:
    """One more line behind a `zero_grad`: the same edit for each `no_sync` whose gradients end there."""
    item = ctx.named(Import(SUPPORT, "discard_unsynced_gradients"), call)
    accumulating = (node.value for node in ctx.nodes(cst.Attribute) if node.attr.value == "no_sync")
    model = next((each for each in accumulating if ctx.code(each) == ctx.code(model)), model)
    owner = cst.ensure_type(call.func, cst.Attribute).value
    optimizer = f", {ctx.quote(owner)}" if _may_be_of_another(call, model, ctx) else ""
    return _behind(call, f"{item.local}({ctx.quote(model)}{optimizer})", ctx), item


def _is_model(call: cst.Call, ctx: Context) -> bool:
    """`model.zero_grad()`, which says itself whose gradients it drops."""
    return ModelKind.FSDP in ctx.kinds(cst.ensure_type(call.func, cst.Attribute).value)


def _may_be_of_another(call: cst.Call, model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether the optimizer of a `zero_grad` can be another model's, which leaves this one's gradients alone."""
    owner = cst.ensure_type(call.func, cst.Attribute).value
    text = ctx.code(model)
    if _is_model(call, ctx) or text in _made_of(owner, ctx):
        return False
    return any(ModelKind.FSDP in ctx.kinds(node) for node in _beside(call, ctx) if not _is_part(ctx.code(node), text))


def _beside(call: cst.Call, ctx: Context) -> Iterator[cst.Name | cst.Attribute]:
    """What has a name where a call stands: in its function, and as an attribute of its object."""
    for node in ctx.inside(ctx.scope(call)):
        if isinstance(node, (cst.Name, cst.Attribute)):
            yield node
    holder = _class(call, ctx)
    for node in ctx.inside(holder) if holder is not None else ():
        if isinstance(node, cst.Attribute) and is_name(node.value, "self"):
            yield node


def _is_part(text: str, model: str) -> bool:
    return f"{text}.".startswith(f"{model}.") or f"{model}.".startswith(f"{text}.")


def model_beside(call: cst.Call, ctx: Context) -> cst.BaseExpression | None:
    """The model whose gradients a `zero_grad` of another file drops: its own, or the only one of its function."""
    owner = cst.ensure_type(call.func, cst.Attribute).value
    if not isinstance(ctx.parent(call), cst.Expr):
        return None
    if ModelKind.FSDP in ctx.kinds(owner):
        return owner
    function = ctx.scope(call)
    if not isinstance(function, cst.FunctionDef) or not words(last_name(owner)) & BOUND:
        return None
    named = (node for node in ctx.inside(function.body) if isinstance(node, cst.Name) and ctx.scope(node) is function)
    models = {node.value: node for node in named if ModelKind.FSDP in ctx.kinds(node)}
    found = next(iter(models.values()), None)
    return found if len(models) == 1 and found is not None and ctx.same_meaning(found, call) else None


def _of_others(
    ctx: Context, lost: list[cst.FunctionDef], models: tuple[str, frozenset[str]]
) -> Iterator[tuple[Context, cst.Call]]:
    """Whoever calls a function that nobody is seen to call may call any other one next."""
    for where in (ctx, *others(ctx, "zero_grad")):
        for call in _dropping_calls(where):
            if _drops(call, where, models) and not any(outer in lost for outer in where.ancestors(call)):
                yield where, call


@once
def _dropping_calls(ctx: Context) -> Sequence[cst.Call]:
    """The calls of `zero_grad` in a file that no step is seen to stand in front of."""
    calls = (call for call in ctx.nodes(cst.Call) if called_on(call, "zero_grad") is not None)
    return [call for call in calls if not follows_step(call, ctx)]


def _accumulating(model: cst.BaseExpression, ctx: Context) -> tuple[str, frozenset[str]]:
    """The model, and the others of the file that accumulate: each can have an optimizer of its own."""
    text = ctx.code(model)
    accumulating = {ctx.code(node.value) for node in ctx.nodes(cst.Attribute) if node.attr.value == "no_sync"}
    return text, frozenset(accumulating - {text})


def _drops(node: cst.CSTNode, ctx: Context, models: tuple[str, frozenset[str]]) -> bool:
    if isinstance(node, cst.AssignTarget):
        return isinstance(node.target, cst.Attribute) and node.target.attr.value == "grad"
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return False
    return node.func.attr.value == "zero_grad" and not _is_for(node.func.value, models, ctx)


def _steps(node: cst.CSTNode, ctx: Context) -> bool:
    """`optimizer.step()`, `scaler.step(optimizer)`; a scheduler's is none."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute) or node.func.attr.value != "step":
        return False
    return not any(word.startswith("sched") for word in words(last_name(node.func.value)))


def _behind(call: cst.Call, text: str, ctx: Context) -> Edit:
    """One more statement behind the one that is this call: on a line of its own where that has one."""
    line = ctx.parent(ctx.parent(call) or call)
    end = ctx.span(call)[1]
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return Edit(end, end, f"; {text}")
    start = ctx.whole_lines(line)[0]
    indent = ctx.text[start : ctx.span(line)[0]]
    comment = ctx.text[end:].split("\n", 1)[0].rstrip("\r")
    return Edit(end, end + len(comment), f"{comment}{ctx.newline}{indent}{text}")


def _is_for(owner: cst.BaseExpression, models: tuple[str, frozenset[str]], ctx: Context) -> bool:
    """Whether what is zeroed is seen to belong to other models that accumulate."""
    model, accumulating = models
    if not accumulating:
        return False
    named = _made_of(owner, ctx)
    return bool(named & accumulating) and model not in named


@once
def _made_of(owner: cst.BaseExpression, ctx: Context) -> frozenset[str]:
    """The names in the expressions that an optimizer is made by, and their attributes."""
    made = [(ctx, owner), *((o.file, o.node) for o in ctx.origins(owner) if o.node is not None)]
    inside = ((where, inner) for where, node in made for inner in where.inside(node))
    return frozenset(where.code(inner) for where, inner in inside if isinstance(inner, (cst.Name, cst.Attribute)))


def _is_known(model: cst.BaseExpression, call: cst.Call, ctx: Context) -> bool:
    """Whether the model's text means the same model beside the call."""
    if ctx.same_meaning(model, call):
        return True
    is_self = isinstance(model, cst.Attribute) and is_name(front(model), "self")
    return is_self and _class(model, ctx) is not None and _class(model, ctx) is _class(call, ctx)


def _class(node: cst.CSTNode, ctx: Context) -> cst.ClassDef | None:
    """The class whose method a node stands in."""
    function = ctx.scope(node)
    if not isinstance(function, cst.FunctionDef):
        return None
    holder = ctx.scope(function)
    return holder if isinstance(holder, cst.ClassDef) else None


def leaves_backward_behind(block: cst.With, ctx: Context) -> bool:
    """Whether a backward is seen behind a block, in the same function, and none in what the block runs."""
    end = ctx.span(block)[1]
    behind = any(computes_gradients(call) and ctx.span(call)[0] >= end for call in ctx.calls(ctx.scope(block)))
    return behind and not backwards_in(block, ctx)


def backwards_in(node: cst.CSTNode, ctx: Context) -> list[cst.Call]:
    """The calls in some code that go backward, themselves or by the functions of the program that they run."""
    return [inner for inner in ctx.inside(node) if isinstance(inner, cst.Call) and _goes_backward(inner, ctx, set())]


def computes_gradients(node: cst.CSTNode) -> bool:
    """`loss.backward()`, `manual_backward(loss)`, `torch.autograd.grad(loss, x)`."""
    if not isinstance(node, cst.Call):
        return False
    if isinstance(node.func, cst.Attribute) and node.func.attr.value == "grad":
        return last_name(node.func.value) == "autograd"
    return is_backward(node)


def _goes_backward(call: cst.Call, ctx: Context, seen: set[cst.CSTNode]) -> bool:
    if computes_gradients(call):
        return True
    for where, function in ctx.runs(call):
        if function not in seen:
            seen.add(function)
            inside = where.inside(function.body)
            if any(isinstance(inner, cst.Call) and _goes_backward(inner, where, seen) for inner in inside):
                return True
    return False


def follows_step(call: cst.Call, ctx: Context) -> bool:
    """Whether the optimizer has stepped since the last backward, on every way to this call."""
    for inner, outer in upward(ctx, call):
        if isinstance(outer, (cst.IndentedBlock, cst.Module, *_LINES)):
            body: list[cst.CSTNode] = list(outer.body)
            for statement in reversed(body[: body.index(inner)]):
                if _always_steps(statement, ctx):
                    return True
                if any(computes_gradients(each) for each in ctx.inside(statement)):
                    return False
        if isinstance(outer, (cst.For, cst.While, cst.FunctionDef, cst.ClassDef)):
            return False
    return False


def _always_steps(statement: cst.CSTNode, ctx: Context) -> bool:
    if isinstance(statement, cst.If):
        other = statement.orelse
        otherwise = other.body if isinstance(other, cst.Else) else other
        return otherwise is not None and _always_steps(statement.body, ctx) and _always_steps(otherwise, ctx)
    if isinstance(statement, (cst.With, cst.Try)):
        return _always_steps(statement.body, ctx)
    if isinstance(statement, cst.IndentedBlock):
        return any(_always_steps(inner, ctx) for inner in statement.body)
    return isinstance(statement, _SIMPLE) and any(_steps(inner, ctx) for inner in ctx.inside(statement))
