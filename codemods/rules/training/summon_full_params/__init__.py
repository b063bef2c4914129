"""**What it does.** Gathers parameters where the body of `FSDP.summon_full_params(model, ...)` reads them; where it
does anything else with the model, the context becomes one of the support module.

**Why.** On an FSDP2 model FSDP1's context does nothing, and says nothing: the parameters stay sharded, and what is
written to a gathered copy is lost.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def norms(net):
    model = FSDP(net)
    with FSDP.summon_full_params(model, writeback=False):
        return {name: param.norm().item() for name, param in model.named_parameters()}


def sample(net, prompt):
    model = FSDP(net)
    with FSDP.summon_full_params(model, writeback=False, recurse=False):
        return model.generate(prompt)
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard

from fsdp2_support import unsharded


def norms(net):
    model = fully_shard(net)
    return {name: param.full_tensor().norm().item() for name, param in model.named_parameters()}


def sample(net, prompt):
    model = fully_shard(net)
    with unsharded(model):
        return model.generate(prompt)
```

## Fix safety

Where all that the body does with the model is to read its parameters in a loop, its state dict, or to copy values into
parameters, on every rank, each is gathered by itself, and written as this rank's shard. Two models over all ranks whose
parameters go in pairs, element by element (`e.lerp_(p, 0.1)`), change shard by shard. Where nothing in the body can
run the model or load into it, `full_params` of the support module puts whole parameters in, and takes this rank's shard
of what is written. Otherwise the support module's context reads and writes whole parameters and gradients and writes
back as FSDP1 did, the model may be called in it, and `model.state_dict()` gives whole tensors there and
`load_state_dict` takes them (torch 2.13, 2 ranks). Where parameters are summoned to call the model or its `generate`,
`unsharded` of the support module is enough, which gathers the root's as a forward does; other units gather by
themselves. With `writeback`, which is FSDP1's default, a unit that ran in the context was broken by it: that is
reported. What is whole there is a copy: a loss that is computed of it gives the parameters no gradient, and is
stopped. FSDP1 raised in the backward, but for `NO_SHARD`, and for sums over flat parameters, which had no gradient of
it either (torch 2.13, 2 ranks).

## References

- https://github.com/pytorch/pytorch/issues/100069
"""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from codemods.api import (
    SUPPORT,
    Context,
    Edit,
    Fix,
    Import,
    Level,
    ModelKind,
    Raise,
    Reference,
    Rule,
    finding,
    replaced,
)
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import call_by, is_self, names_around
from codemods.reading.code.words import last_name
from codemods.reading.edits.block_layout import extra_indent, replace_head
from codemods.reading.edits.call_layout import argument_removal, line_above
from codemods.reading.edits.layout import removal
from codemods.reading.edits.resharding import reshards
from codemods.reading.forwards.after_forward import trains_before
from codemods.reading.forwards.calls import GRAD_MODES, model_of_forward
from codemods.reading.parameters.summoned import Body, body_of, gives_model_first, is_looked_into, is_usual
from codemods.reading.processes.one_rank import is_on_one_rank
from codemods.reading.wrappers.beside_fsdp2 import choice_without
from codemods.reading.wraps.flat_parameters import constructor_calls, makes_flat_parameters
from codemods.tables.names import SUMMON

from .summoned_losses import are_added_up, read_for_loss

CODE = "FM203"

_METHOD = SUMMON.rsplit(".")[-1]
_UNSHARDED = "unsharded"
_LOOKED_INTO = "full_params"
_DTYPE = "FSDP1 had the root's own parameters there in their own dtype, and now they are in that of its mp_policy"
_OVERWRITTEN = "FSDP1's writeback, behind a forward in it, wrote other weights over a part of each unit that had run"
_TRAIN_ON = "compare what trains on with writeback=False in the FSDP1 program"
_COMPARE = "compare what is generated; without autocast the root's layers compute in another dtype"
_LOST_GRADIENT = "a loss is computed of parameters that are summoned, which would get no gradient of it"
_RUN_MODEL = "compute it in the forward of the module that has them, and call the wrapped module outside of the context"
_NO_GRADIENT = "the loss that is computed of parameters here gives them no gradient; so it was with flat parameters"
_GIVE_GRADIENT = "give it to the optimizer (weight_decay for squares), or add it to p.grad behind the backward"
_OTHER_DATA = "the model runs on data that is put in the place of its own, after which FSDP1 went on with other values"
_WRITE_IN = "write into it, p.data.copy_(x), which is kept, and the old values back where they are to return"
_RUNS = ("generate", "module", "module.generate")
_PARAMETERS = frozenset({"weight", "bias"})
"""What is no buffer in any module of torch."""


def fix(name: Reference, ctx: PlannedContext) -> Fix | None:
    if not _is_summoning(name, ctx):
        return None
    call = ctx.parent(name)
    if isinstance(call, cst.Call) and _holds_nothing(call, ctx):
        message = f"{_METHOD} around nothing goes"
        block = cst.ensure_type(ctx.parent(ctx.parent(call) or call), cst.With)
        return Fix([removal(ctx, block)], [finding(CODE, Level.REWRITTEN, ctx, name, message)])
    never = choice_without(call, ctx) if isinstance(call, cst.Call) else None
    if never is not None:
        message = f"{_METHOD} goes: the model is none of FSDP1's, the program shards it by fully_shard itself"
        return Fix([never], [finding(CODE, Level.REWRITTEN, ctx, name, message)])
    lost = _lost_gradient(call, name, ctx) if isinstance(call, cst.Call) else None
    if lost is not None and lost.raises:
        return lost
    found = _rewritten(name, ctx)
    return found if lost is None else replace(found, findings=[*found.findings, *lost.findings])


def _rewritten(name: Reference, ctx: PlannedContext) -> Fix:
    call = ctx.parent(name)
    around = ctx.parent(ctx.parent(call) or name) if isinstance(call, cst.Call) else None
    body = body_of(around, ctx) if isinstance(around, cst.With) else None
    if isinstance(around, cst.With) and body is not None:
        return _without(around, body, name, ctx)
    if isinstance(call, cst.Call) and isinstance(around, cst.With) and is_looked_into(around, ctx):
        item = ctx.named(Import(SUPPORT, _LOOKED_INTO), name)
        message = f"{_METHOD} becomes {_LOOKED_INTO}, a support function: nothing in it runs the model"
        edits = [Edit(*ctx.bare_span(call.func), item.local), *_needless(call, ctx)]
        return Fix(edits, [finding(CODE, Level.REWRITTEN, ctx, name, message)], [item])
    if isinstance(call, cst.Call) and _only_runs(call, ctx):
        item = ctx.named(Import(SUPPORT, _UNSHARDED), name)
        text = f"{item.local}({ctx.quote(call.args[0].value)})"
        message, level, hint = f"{_METHOD} to generate becomes {_UNSHARDED}, a support function", Level.REWRITTEN, ""
        if _overwrites(call, ctx):
            message, level, hint = f"{message}; {_OVERWRITTEN}", Level.REVIEW, _TRAIN_ON
        elif ctx.mentions("MixedPrecision"):
            message, level, hint = f"{message}; {_DTYPE}", Level.REVIEW, _COMPARE
        return Fix([Edit(*ctx.bare_span(call), text)], [finding(CODE, level, ctx, name, message, hint)], [item])
    item = ctx.named(Import(SUPPORT, _METHOD), name)
    message = f"{_METHOD} becomes {_METHOD}, a support function"
    made = replaced(CODE, ctx, name, item.local, message, [item])
    if isinstance(around, cst.With) and _runs_on_other_data(around, ctx):
        return replace(made, findings=[finding(CODE, Level.MANUAL, ctx, name, f"{message}; {_OTHER_DATA}", _WRITE_IN)])
    if isinstance(call, cst.Call) and _overwrites(call, ctx):
        told = finding(CODE, Level.REVIEW, ctx, name, f"{message}; {_OVERWRITTEN}", _TRAIN_ON)
        return replace(made, findings=[told])
    return made


def _runs_on_other_data(block: cst.With, ctx: Context) -> bool:
    """`p.data = x`, and a call of a wrapped model, in one block."""
    targets = (node.target for node in ctx.inside(block.body) if isinstance(node, cst.AssignTarget))
    calls = (node for node in ctx.inside(block.body) if isinstance(node, cst.Call))
    is_put = any(isinstance(target, cst.Attribute) and target.attr.value == "data" for target in targets)
    return is_put and any(model_of_forward(call, ctx) is not None for call in calls)


def _needless(call: cst.Call, ctx: Context) -> list[Edit]:
    """Takes away what says what `full_params` does anyhow."""
    usual = [
        each for each in call.args[1:] if each.keyword is not None and is_usual(each.keyword.value, each.value, ctx)
    ]
    return [edit for each in usual for edit in argument_removal(ctx, call, each, usual)]


def _lost_gradient(call: cst.Call, name: Reference, ctx: Context) -> Fix | None:
    """What is said where a loss is made of whole parameters: they are copies, to which a gradient would go."""
    read = [each for block in _blocks(call, ctx) for each in read_for_loss(block, ctx)]
    if not read:
        return None
    model = call.args[0].value if gives_model_first(call) else None
    made = constructor_calls(model, ctx) if model is not None else []
    if made and all(makes_flat_parameters(where, each) for where, each in made) and are_added_up(read, ctx):
        return Fix(findings=[finding(CODE, Level.REVIEW, ctx, name, _NO_GRADIENT, _GIVE_GRADIENT)])
    raises = [Raise(name, CODE, _LOST_GRADIENT, model)]
    return Fix(findings=[finding(CODE, Level.MANUAL, ctx, name, _LOST_GRADIENT, _RUN_MODEL)], raises=raises)


def _is_summoning(name: Reference, ctx: Context) -> bool:
    """`FSDP.summon_full_params`, and `model.summon_full_params`, which is the same static method."""
    if ctx.fsdp1(name) == SUMMON:
        return not isinstance(ctx.parent(name), cst.AssignTarget)
    if not isinstance(name, cst.Attribute) or name.attr.value != _METHOD or ctx.dotted(name) is not None:
        return False
    return not ctx.kinds(name.value).isdisjoint({ModelKind.FSDP, ModelKind.UNKNOWN})


def _without(block: cst.With, body: Body, name: Reference, ctx: PlannedContext) -> Fix:
    """The body alone: parameters are gathered where they are read, and written as this rank's shard."""
    message = f"{_METHOD} goes: its body gathers what it reads"
    findings = [finding(CODE, Level.REWRITTEN, ctx, name, message)]
    if ctx.parent(name) is not next(item.item for item in block.items if item.item not in body.beside):
        return Fix(findings=findings)  # the first context of the block takes all of it away
    imports, gathers = [], ctx.named(Import(SUPPORT, "full_tensor"), name)
    writes = ctx.named(Import(SUPPORT, "write_shard"), name)
    # An evaluation leaves copies in the model, in the precision of its forward.
    is_used = body.reads or body.writes or body.changes or body.alike
    stale = [each for each in body.models if _may_be_copies(each, name, ctx)] if is_used else []
    is_sharded = all(_are_sharded(model, ctx) for model in body.models)
    lines, needed = reshards(ctx, stale, name)
    edits = _beside_alone(block, body, lines, ctx) or replace_head(ctx, block, _lines(lines, block, ctx))
    first = {read: loop for loop, (_, reads) in body.gathered.items() for read in reads}
    for loop, (taken, reads) in body.gathered.items():
        whole = "whole" if "whole" not in names_around(ctx, loop) else f"whole_{taken.value}"
        gathered = f"{taken.value}.full_tensor()" if is_sharded else f"{gathers.local}({taken.value})"
        imports += [] if is_sharded else [gathers]
        cpu = ".cpu()" if body.is_offloaded and reads & body.to_cpu else ""
        edits.append(_at_top(loop, f"{whole} = {gathered}{cpu}", None if body.beside else block, ctx))
        edits += [Edit(*ctx.bare_span(read), whole) for read in reads]
    for read in body.reads:
        if read in first:
            continue
        start, end = ctx.bare_span(read)
        cpu = ".cpu()" if body.is_offloaded and read in body.to_cpu else ""
        if is_sharded and (isinstance(read, cst.Name) or last_name(read) in {*_PARAMETERS, "grad"}):
            edits.append(Edit(end, end, f".full_tensor(){cpu}"))
        else:
            edits += [Edit(start, start, f"{gathers.local}("), Edit(end, end, f"){cpu}")]
            imports.append(gathers)
    for call, param, value in body.writes:
        edits.append(Edit(*ctx.bare_span(call), f"{writes.local}({ctx.code(param)}, {ctx.quote(value)})"))
        imports.append(writes)
    return Fix(edits, findings, list(dict.fromkeys([*imports, *needed])))


def _beside_alone(block: cst.With, body: Body, lines: list[str], ctx: PlannedContext) -> list[Edit]:
    """What else the block enters stays, where there is anything."""
    if not body.beside:
        return []
    start, end = ctx.span(block.items[0].item)[0], ctx.span(block.items[-1].item)[1]
    above = [line_above(ctx, block, *lines)] if lines else []
    return [*above, Edit(start, end, ", ".join(map(ctx.quote, body.beside)))]


def _at_top(loop: cst.For, line: str, block: cst.With | None, ctx: Context) -> Edit:
    """A new first line of a loop, whose block comes one level out where it goes."""
    first = cst.ensure_type(loop.body, cst.IndentedBlock).body[0]
    start = ctx.span(first)[0]
    indent = ctx.text[ctx.whole_lines(first)[0] : start]
    gone = extra_indent(ctx, block) if block is not None else 0
    return Edit(start, start, f"{line}{ctx.newline}{indent[gone:]}")


def _may_be_copies(model: cst.BaseExpression, name: cst.CSTNode, ctx: Context) -> bool:
    call = cst.ensure_type(ctx.parent(name) or name, cst.Call)
    return ctx.mentions(*GRAD_MODES) and not trains_before(call, model, ctx)


def _are_sharded(model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether every parameter is a DTensor."""
    ignores = ctx.mentions("ignored_modules", "ignored_states", "ignored_parameters")
    return not ignores and ctx.kinds(model) == {ModelKind.FSDP}


def _lines(lines: list[str], block: cst.With, ctx: Context) -> str:
    indent = ctx.text[ctx.whole_lines(block)[0] : ctx.span(block)[0]]
    return f"{ctx.newline}{indent}".join(lines)


def _holds_nothing(call: cst.Call, ctx: Context) -> bool:
    """`with FSDP.summon_full_params(model): pass`."""
    item = ctx.parent(call)
    block = ctx.parent(item) if isinstance(item, cst.WithItem) else None
    if not isinstance(block, cst.With) or len(block.items) != 1:
        return False
    lines = [line.body if isinstance(line, cst.SimpleStatementLine) else [line] for line in block.body.body]
    return all(isinstance(statement, cst.Pass) for line in lines for statement in line)


def _only_runs(call: cst.Call, ctx: Context) -> bool:
    """Whether nothing is done with the model, in the blocks that enter the context, but to call it, or `generate`.

    The root's own parameters are whole there, and in the precision of its forward, as in any forward; other units
    gather theirs in it, whether they were summoned too or not. Nothing is written that `writeback` could keep.
    """
    if not gives_model_first(call):
        return False
    given = _options(call, ctx)
    model = call.args[0].value
    if not given.keys() <= {"writeback", "recurse"} or len(given) < len(call.args) - 1:
        return False
    if ModelKind.FSDP not in ctx.kinds(model):
        return False
    runs = [_runs_in(block.body, ctx.code(model), ctx) for block in _blocks(call, ctx)]
    return None not in runs and any(runs)


def _runs_in(body: cst.CSTNode, model: str, ctx: Context, depth: int = 1) -> int | None:
    """How often a body runs a model; None where it does anything else with it. A method of `self` is looked into."""
    count = 0
    for node in ctx.inside(body):
        if _hands_on(node, model, ctx):
            below = _runs_below(node, model, ctx, depth)
            if below is None:
                return None
            count += below
        elif isinstance(node, (cst.Name, cst.Attribute)) and ctx.code(node) == model:
            if not _is_run(node, ctx):
                return None
            count += 1
    return count


def _runs_below(holder: cst.CSTNode, model: str, ctx: Context, depth: int) -> int | None:
    """The same of `self.sample(batch)`, for `self.model`."""
    call = ctx.parent(ctx.parent(holder) or holder)
    if not depth or not isinstance(holder, cst.Name) or not is_self(holder, ctx) or not isinstance(call, cst.Call):
        return None
    runs = [_runs_in(function.body, model, where, depth - 1) for where, function in ctx.runs(call)]
    return sum(each or 0 for each in runs) if runs and None not in runs else None


def _overwrites(call: cst.Call, ctx: Context) -> bool:
    """Whether a unit that is summoned to be written back is seen to run: its forward reshards it, and FSDP1 then took
    the rank's piece of the shard for its piece of the whole (`_writeback_to_local_shard`, torch 2.13, 2 ranks).

    Without `recurse` that is the root, whose own forward `model.module(x)` and `model.generate(x)` do not run.
    """
    given = _options(call, ctx)
    if not gives_model_first(call) or given.get("writeback", "True") != "True":
        return False
    model = ctx.code(call.args[0].value)
    runs = [model] if given.get("recurse") == "False" else [model, *(f"{model}.{each}" for each in _RUNS)]
    inside = (node for block in _blocks(call, ctx) for node in ctx.inside(block.body))
    found = [node for node in inside if isinstance(node, cst.Call) and ctx.code(node.func) in runs]
    return any(not is_on_one_rank(each, ctx) for each in found)  # FM442 tells of those


def _options(call: cst.Call, ctx: Context) -> dict[str, str]:
    return {each.keyword.value: ctx.code(each.value) for each in call.args[1:] if each.keyword is not None}


def _hands_on(node: cst.CSTNode, model: str, ctx: Context) -> bool:
    """Whether something gets the model, or what holds it: `check(trainer)` and `trainer.fit()` for `trainer.model`."""
    if isinstance(node, cst.Arg):
        return ModelKind.FSDP in ctx.kinds(node.value)
    if not isinstance(node, (cst.Name, cst.Attribute)) or not model.startswith(f"{ctx.code(node)}."):
        return False
    holder = ctx.parent(node)
    if not isinstance(holder, cst.Attribute):
        return True
    is_method = call_by(holder, ctx) is not None
    return is_method and holder.value is node and ctx.code(holder) != model


def _blocks(call: cst.Call, ctx: Context) -> list[cst.With]:
    """The `with` that enters the context, or those that enter what the name of a lambda around it gives."""
    for outer in ctx.ancestors(call):
        if isinstance(outer, cst.With):
            return [outer]
        if isinstance(outer, cst.Assign) and isinstance(outer.targets[0].target, cst.Name):
            name = outer.targets[0].target.value
            blocks = [node for node in ctx.inside(ctx.scope(outer)) if isinstance(node, cst.With)]
            return [block for block in blocks if any(_enters(item.item, name) for item in block.items)]
        if isinstance(outer, (cst.BaseSmallStatement, cst.BaseCompoundStatement)):
            return []
    return []


def _enters(entered: cst.BaseExpression, name: str) -> bool:
    """`context` and `context()`."""
    expression = entered.func if isinstance(entered, cst.Call) else entered
    return isinstance(expression, cst.Name) and expression.value == name


def _is_run(model: cst.CSTNode, ctx: Context) -> bool:
    """`model(x)`, `model.generate(x)`, `model.module.generate(x)`."""
    holder = ctx.parent(model)
    if isinstance(holder, cst.Attribute) and holder.attr is model:
        return True  # the name of another object's attribute
    if isinstance(holder, cst.Attribute) and holder.attr.value == "module":
        return _is_run(holder, ctx)
    if isinstance(holder, cst.Attribute) and holder.attr.value == "generate":
        model, holder = holder, ctx.parent(holder)
    return isinstance(holder, cst.Call) and holder.func is model


RULE: Rule[Reference] = Rule(
    CODE, "summon-full-params", __doc__, nodes=(cst.Attribute, cst.Name), fix=fix, methods=(_METHOD,)
)
