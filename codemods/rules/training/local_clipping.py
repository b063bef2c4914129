"""**What it does.** Finds `torch.nn.utils.clip_grad_norm_` on the parameters of a wrapped model, and `get_total_norm`
on their gradients, and makes the norm that they return a plain tensor where it is used.

**Why.** Under FSDP1 that function saw this rank's flat shards and clipped by a norm of its own on every rank. On
FSDP2's DTensors it computes the global norm. The rewritten program is right where the original was not, and its
losses differ for it.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def step(net, batch):
    model = FSDP(net)
    model(batch).sum().backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    print(f"{norm:.2f}")
```

## Use instead

```python
import torch
from torch.distributed.fsdp import fully_shard


def step(net, batch):
    model = fully_shard(net)
    model(batch).sum().backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
    print(f"{norm:.2f}")
```

## Fix safety

It clips otherwise than before, and as it was meant. Measured on torch 2.13, 2 ranks: local norms 3.3211 and 3.3820
before, the global norm 4.7399 after. Where torch's function would fail (an infinity norm, ignored or offloaded
parameters, those of an unwrapped module beside), a function of the support module is called that is written for that
case. timm's `dispatch_clip_grad` and `NativeScaler` call torch's, or clip element by element, which is the same; its
AGC raises for DTensors (timm 1.0.9).

## References

- https://docs.pytorch.org/docs/stable/fsdp.html#torch.distributed.fsdp.FullyShardedDataParallel.clip_grad_norm_
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Finding, Fix, Import, Level, ModelKind, Raise, Rule, finding, left
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import enclosing
from codemods.reading.code.once import once
from codemods.reading.code.scripts import is_script, may_come_from_others
from codemods.reading.code.shapes import indexed_front, is_call_to
from codemods.reading.code.words import last_name, words
from codemods.reading.edits.call_layout import argument_removal
from codemods.reading.edits.layout import insertion
from codemods.reading.edits.resharding import reshards
from codemods.reading.forwards.after_forward import clips_after_forward
from codemods.reading.gradients.clipping import (
    STALE,
    STALE_HINT,
    asked_for_method,
    clipper,
    has_plain_norm,
    may_be_anothers,
)
from codemods.reading.gradients.inside import collectives_on_gradients
from codemods.reading.gradients.timm_clipping import FUNCTIONS as TIMMS
from codemods.reading.gradients.timm_clipping import SCALER, modes, reads_model
from codemods.reading.models.parts import model_around, wrapped_around
from codemods.reading.parameters.lists import appended, given_to_optimizer, is_group, loops_around
from codemods.reading.parameters.of_model import READERS
from codemods.reading.processes.one_rank import is_on_one_rank

CODE = "FM206"

_SHARDING = frozenset({"fsdp", "fsdp1", "shard", "sharded", "sharding"})
_TOTAL = "get_total_norm"
_AGC = "timm's AGC raises for DTensors, where FSDP1 gave it flat pieces, each with a norm of its own"
_AGC_HINT = "clip by mode='norm', or write it with the norms of p.full_tensor() and p.grad.full_tensor()"
_TIMM = "timm clips by torch's own function, which fails for what is offloaded or ignored here, or by this norm type"
_TIMM_HINT = "call torch.nn.utils.clip_grad_norm_(parameters, value) itself, and run again"
_DEPTH = 5
"""How many gatherings of gathered parameters are followed."""
_CLIPS = frozenset({"clip_grad_norm_", "clip_grad_norm"})
_FUNCTIONS = _CLIPS | {_TOTAL}
_CHOOSES = (cst.IfExp, cst.BooleanOperation)
_PARAMETERS = frozenset({"torch.nn.Parameter", "torch.nn.parameter.Parameter"})
_HANDS_ON = (cst.Arg, cst.Assign, cst.DictElement, cst.Element, cst.IfExp, cst.Return)
_LOCAL = (
    "FSDP1 clipped by each rank's own norm here, which its documentation warns of; on FSDP2 it is the global norm,"
    " and the losses differ for it"
)
_LOCAL_HINT = "expect other losses than before, or compare with a run that calls model.clip_grad_norm_"
_OWNERS = frozenset({"torch.nn.utils", "torch.nn.utils.clip_grad"})


@dataclass(frozen=True)
class _Clipping:
    """One `torch.nn.utils.clip_grad_norm_(...)` with the model whose parameters it gets."""

    call: cst.Call
    model: cst.BaseExpression
    where: Context
    """The file that the model is read in."""
    held: frozenset[ModelKind]
    directly: bool
    """Whether the parameters are `model.parameters()` itself, and not a selection of them."""
    function: str
    """Empty where run time chooses how to clip."""
    is_mixed: bool = False
    """Whether parameters of no wrapped model are clipped with them."""


def fix(node: cst.BaseExpression, ctx: PlannedContext) -> Fix | None:
    if isinstance(node, cst.Call):
        return _of_call(node, ctx)
    return _handed_on(node, ctx) if isinstance(node, cst.Name) else None


def _handed_on(name: cst.Name, ctx: PlannedContext) -> Fix | None:
    """The function itself, which something calls later: `partial(clip_grad_norm_, max_norm=1.0)`."""
    if name.value not in _CLIPS or ctx.path not in ctx.plan.near:
        return None
    parent = ctx.parent(name)
    function = parent if isinstance(parent, cst.Attribute) and parent.attr is name else name
    holder = ctx.parent(function)
    if not isinstance(holder, _HANDS_ON) or not _is_torchs(ctx.dotted(function)) or _is_of_another_way(function, ctx):
        return None
    line = next((each for each in ctx.ancestors(function) if isinstance(each, cst.BaseSmallStatement)), holder)
    if any(isinstance(each, cst.Attribute) and _clips_by_own(each, ctx) for each in ctx.inside(line)):
        return None
    return Fix(findings=[finding(CODE, Level.REVIEW, ctx, function, _LOCAL, _LOCAL_HINT)])


def _clips_by_own(read: cst.Attribute, ctx: Context) -> bool:
    """`model.clip_grad_norm_`."""
    return read.attr.value in _CLIPS and ModelKind.FSDP in ctx.kinds(read.value)


def _is_torchs(dotted: str | None) -> bool:
    owner, _, function = (dotted or "").rpartition(".")
    return owner in _OWNERS and function in _FUNCTIONS


def _of_call(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    found = _find(call, ctx)
    if found is None:
        return None
    if found.function == _TOTAL:
        return _total(found, ctx)
    if not found.function:
        return Fix(findings=[finding(CODE, Level.REVIEW, ctx, call, _LOCAL, _LOCAL_HINT)])
    if is_on_one_rank(call, ctx):
        return _on_one_rank(found, ctx)
    ways = modes(call, ctx)
    if ways == {"agc"}:
        return Fix(findings=[finding(CODE, Level.MANUAL, ctx, call, _AGC, _AGC_HINT)])
    message, hint = _LOCAL, _LOCAL_HINT
    rerun = found.directly and clips_after_forward(call, found.model, ctx)
    if rerun:
        message, hint = f"{message}; {STALE}", STALE_HINT
    if "agc" in ways:
        message = f"{message}; with mode='agc' it raises"
    support = clipper(found.model, has_plain_norm(call, 2 if ways else 1, ctx), found.where, ctx.plan, found.is_mixed)
    if ways and support:
        return Fix(findings=[finding(CODE, Level.MANUAL, ctx, call, _TIMM, _TIMM_HINT)])
    findings = [finding(CODE, Level.MANUAL if rerun else Level.REVIEW, ctx, call, message, hint)]
    written = _through_support(found, support, ctx, findings) if support else _plain(found, ctx, findings)
    if not rerun or written.raises:
        return written
    lines, imports = reshards(ctx, [found.model], call)
    above = insertion(ctx, call, lines)
    return replace(written, edits=[*written.edits, above], imports=[*written.imports, *imports])


def _find(call: cst.Call, ctx: PlannedContext) -> _Clipping | None:
    dotted = ctx.dotted(call.func) or ""
    is_chosen = _is_looked_up(call.func, ctx)
    if not call.args or not (_is_torchs(dotted) or is_chosen or modes(call, ctx) - {"value"}):
        return None
    given = _parameters(call).value
    found: _Clipping | None = None
    all_held: frozenset[ModelKind] = frozenset()
    in_group = is_mixed = False
    for where, expression in () if _is_of_another_way(call, ctx) else _followed(given, ctx):
        is_mixed = is_mixed or (not is_group(given) and _mixes(expression, where))
        for inner in where.inside(expression):
            in_group = in_group or (is_group(inner) and ctx.path in ctx.plan.near)
            read = _model_read_by(inner, where)
            if read is None:
                continue
            at, model = _whole(read, where)
            held = at.kinds(model)
            all_held |= held
            if found is None and (ModelKind.FSDP in held or (in_group and _may_be_wrapped(held))):
                function = "" if is_chosen else dotted.rpartition(".")[2]
                found = _Clipping(call, model, at, held, inner is given, function)
    return None if found is None else replace(found, held=all_held, is_mixed=is_mixed)


def _is_looked_up(function: cst.BaseExpression, ctx: Context) -> bool:
    """`getattr(torch.nn.utils, f"clip_grad_{mode}_")`, by a variable too."""
    if isinstance(function, cst.Name):
        if not _looks_up(ctx):
            return False  # said first: where each name that is called comes from takes long
        return any(_is_looked_up(o.node, o.file) for o in ctx.origins(function) if isinstance(o.node, cst.Call))
    if not is_call_to(function, "getattr") or len(function.args) < 2:
        return False
    name = function.args[1].value
    is_other = isinstance(name, (cst.SimpleString, cst.FormattedString)) and "clip_grad" not in ctx.code(name)
    return ctx.dotted(function.args[0].value) in _OWNERS and not is_other and "value" not in ctx.code(name)


@once
def _looks_up(ctx: Context) -> bool:
    """Whether any file of the program looks up a function so."""
    return any(_looks_up_here(file) for file in ctx.files("getattr"))


@once
def _looks_up_here(ctx: Context) -> bool:
    return any(_is_looked_up(call, ctx) for call in ctx.nodes(cst.Call))


def _mixes(expression: cst.BaseExpression, ctx: Context) -> bool:
    """`[*model.parameters(), *head.parameters(), scale]`: what is sharded, and what is not, in one list."""
    sharded = plain = False
    for node in ctx.inside(expression):
        read = _model_read_by(node, ctx)
        if isinstance(node, cst.Element):
            made = [o.file.dotted(o.node.func) for o in ctx.origins(node.value) if isinstance(o.node, cst.Call)]
            plain = plain or any(name in _PARAMETERS for name in made)
        elif read is not None and not any(isinstance(outer, _CHOOSES) for outer in ctx.ancestors(node)):
            at, model = _whole(read, ctx)
            held = at.kinds(model)
            sharded = sharded or ModelKind.FSDP in held
            plain = plain or ModelKind.FSDP not in held or (ModelKind.OTHER in held and _is_of_display(read, ctx))
    return sharded and plain


def _is_of_display(model: cst.BaseExpression, ctx: Context) -> bool:
    """`m` in `for m in (model, head)`."""
    return any(isinstance(over, (cst.List, cst.Tuple)) for over in loops_around(model, ctx))


def _whole(read: cst.BaseExpression, ctx: Context) -> tuple[Context, cst.BaseExpression]:
    """The model that parameters are read of, or of a part of it: `for block in model.blocks`."""
    around = model_around(read, ctx)
    if around is not None or ModelKind.FSDP in ctx.kinds(read) or not any(loops_around(indexed_front(read), ctx)):
        return ctx, around or read
    return wrapped_around(read, ctx) or (ctx, read)


def _may_be_wrapped(held: frozenset[ModelKind]) -> bool:
    """Whether some of what a model can be is seen, and some is not, as where a function puts wrapped parts into it."""
    return ModelKind.UNKNOWN in held and len(held) > 1


def _through_support(found: _Clipping, support: str, ctx: Context, findings: list[Finding]) -> Fix:
    """The support module's function, which has fewer parameters than torch's."""
    call = found.call
    item = ctx.named(Import(SUPPORT, support), call)
    edits = [Edit(*ctx.bare_span(call.func), item.local)]
    for argument in call.args:
        if argument.keyword is not None and argument.keyword.value == "foreach":
            edits += argument_removal(ctx, call, argument)
        elif argument.keyword is not None and argument.keyword.value == "error_if_nonfinite":
            why = "clip_grad_norm_ with error_if_nonfinite fails here"
            findings = [replace(each, level=Level.MANUAL) for each in findings]
            stopped = Raise(call, CODE, why, found.model if found.where is ctx else None)
            return Fix(findings=findings, raises=[stopped])
    return Fix(edits, findings, [item])


def _on_one_rank(found: _Clipping, ctx: Context) -> Fix:
    """Under FSDP1 no rank asked another one for its norm."""
    message = f"{found.function} runs on one rank alone: on FSDP2 the norm is over all ranks, and waits for the others"
    return left(CODE, Level.MANUAL, ctx, found.call, message, "clip on every rank, and print on one")


def _total(found: _Clipping, ctx: Context) -> Fix | None:
    """The norm of gradients alone. What comes to a collective is left to the rule for those."""
    if is_on_one_rank(found.call, ctx):
        return _on_one_rank(found, ctx)
    message = "FSDP1 took each rank's own norm here; on FSDP2 it is the global norm"
    findings = [finding(CODE, Level.REVIEW, ctx, found.call, message, "expect another norm, and what is made of it")]
    if collectives_on_gradients(enclosing(ctx, found.call, cst.FunctionDef) or ctx.top, ctx):
        return None
    return _plain(found, ctx, findings)


def _plain(found: _Clipping, ctx: Context, findings: list[Finding]) -> Fix:
    """The norm as a plain tensor, where it is used."""
    call = found.call
    if isinstance(ctx.parent(call), cst.Expr) or modes(call, ctx):
        return Fix(findings=findings)
    if found.held == {ModelKind.FSDP} and not _serves_others(found, ctx):
        return Fix([Edit(*ctx.span(call), f"{ctx.quote(call)}.full_tensor()")], findings)
    item = ctx.named(Import(SUPPORT, "full_tensor"), call)
    return Fix([Edit(*ctx.span(call), f"{item.local}({ctx.quote(call)})")], findings, [item])


def _serves_others(found: _Clipping, ctx: Context) -> bool:
    """Whether parameters of a plain model may come as well, to a function that is given them, or the model."""
    if found.where is ctx:
        return may_come_from_others(found.model, ctx)
    return not (ctx.options.sees_all or is_script(ctx))


def _parameters(call: cst.Call) -> cst.Arg:
    return next((a for a in call.args if a.keyword is not None and a.keyword.value == "parameters"), call.args[0])


def _is_of_another_way(call: cst.BaseExpression, ctx: Context) -> bool:
    """Whether the program asks how it runs (`engine == "ddp"`, `use_fsdp`), and clips a sharded model by FSDP1's own
    method on the other way.
    """
    for inner, outer in pairwise([call, *ctx.ancestors(call)]):
        if isinstance(outer, cst.FunctionDef):
            return False
        if not isinstance(outer, cst.If) or outer.orelse is None or inner not in (outer.body, outer.orelse):
            continue
        is_body = inner is outer.body
        asked = outer.test.expression if is_body and isinstance(outer.test, cst.UnaryOperation) else outer.test
        is_told = _asks_for_sharding(asked) and (not is_body or asked is not outer.test)
        is_told |= _asks_for_a_word(asked) if is_body else _asks_for_method(asked, ctx)
        if is_told and _clips_by_method(outer.orelse if is_body else outer.body, ctx):
            return True
    return False


def _clips_by_method(branch: cst.CSTNode, ctx: Context) -> bool:
    read = [n for n in ctx.inside(branch) if isinstance(n, cst.Attribute) and n.attr.value in _FUNCTIONS]
    return any(ModelKind.FSDP in ctx.kinds(node.value) for node in read)


def _asks_for_sharding(test: cst.BaseExpression) -> bool:
    """`config.enable_fsdp`, `is_sharded(model)`, `isinstance(model, FSDP)`, `strategy == Strategy.FSDP`."""
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        asked = test.comparisons[0]
        is_equal = isinstance(asked.operator, (cst.Equal, cst.Is))
        return is_equal and not _SHARDING.isdisjoint(words(last_name(asked.comparator)))
    parts = [test.func, *(argument.value for argument in test.args)] if isinstance(test, cst.Call) else [test]
    return any(not _SHARDING.isdisjoint(words(last_name(part))) for part in parts)


def _asks_for_method(test: cst.BaseExpression, ctx: Context) -> bool:
    """`hasattr(model, "clip_grad_norm_")`, where no FSDP2 model comes to what is clipped otherwise."""
    if not isinstance(test, cst.Call) or not asked_for_method(test, ctx):
        return False
    return not may_be_anothers(ctx.kinds(test.args[0].value), ctx)


def _asks_for_a_word(test: cst.BaseExpression) -> bool:
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    asked = test.comparisons[0]
    return isinstance(asked.operator, cst.Equal) and isinstance(asked.comparator, cst.SimpleString)


def _followed(
    given: cst.BaseExpression, ctx: Context, depth: int = _DEPTH
) -> Iterator[tuple[Context, cst.BaseExpression]]:
    """The expression itself, and what a name or attribute in its place was set to, or a function returns there.

    For the groups of an optimizer, what the optimizer was made of; for what a loop or a comprehension gathers
    (`[p.grad for p in parameters]`), what it goes over.
    """
    made = _origins(given, ctx) if isinstance(given, (cst.Name, cst.Attribute, cst.Call)) else ()
    for where, expression in ((ctx, given), *made):
        yield where, expression
        for at, over in _gone_over(expression, where) if depth else ():
            yield from _followed(over, at, depth - 1)


def _gone_over(made: cst.BaseExpression, ctx: Context) -> Iterator[tuple[Context, cst.BaseExpression]]:
    yield from ((ctx, over) for over in appended(made, ctx))
    one = made.value if isinstance(made, cst.Subscript) and is_group(made) else made
    yield from ((ctx, over) for over in loops_around(one, ctx))
    for node in (made, *ctx.inside(made)):
        yield from given_to_optimizer(node, ctx)
        if isinstance(node, cst.CompFor) and isinstance(node.iter, (cst.Name, cst.Attribute)):
            yield ctx, node.iter
        elif isinstance(node, cst.DictElement) and _is_params(node.key):
            yield ctx, node.value


def _is_params(key: cst.BaseExpression) -> bool:
    return isinstance(key, cst.SimpleString) and key.evaluated_value == "params"


def _origins(node: cst.BaseExpression, ctx: Context) -> Iterator[tuple[Context, cst.BaseExpression]]:
    for origin in ctx.origins(node):
        if isinstance(origin.node, cst.BaseExpression):
            yield origin.file, origin.node


def _model_read_by(node: cst.CSTNode, ctx: Context) -> cst.BaseExpression | None:
    """`model` of `model.parameters()`."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in READERS:
        return node.func.value
    return node.args[0].value if isinstance(node, cst.Call) and reads_model(node, ctx) else None


RULE = Rule(
    CODE,
    "clipping-by-local-norm",
    __doc__,
    nodes=(cst.Call, cst.Name),
    fix=fix,
    methods=("clip_grad_norm_", _TOTAL),
    functions=(*TIMMS, SCALER),
)
