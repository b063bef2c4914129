"""**What it does.** Rewrites `ShardedGradScaler(...)` into `torch.amp.GradScaler(...)`.

**Why.** The sharded scaler exists because FSDP1's gradients are plain local shards: it reduces `found_inf` over
the ranks by itself. With DTensor gradients the ordinary scaler does that.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def setup(net):
    return FSDP(net), ShardedGradScaler(init_scale=1024.0)
```

## Use instead

```python
import torch
from torch.distributed.fsdp import fully_shard


def setup(net):
    return fully_shard(net), torch.amp.GradScaler(init_scale=1024.0)
```

## Fix safety

An infinity on one rank's shard makes both ranks skip the step and halve the scale, as before (torch 2.13, 2 ranks).
Where a model ignores parameters it is reported: torch's scaler raises for plain gradients beside DTensors.

A plain scaler on a wrapped model stays as it is and is reported: under FSDP1 each rank decided by its own shards. An
overflow in the shard of rank 1 left the scales 65536 and 32768 (it alone skipped the step), and both 32768 now.

## References

- https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Edit, Fix, Import, Level, Reference, Rule, finding, left, rewritten
from codemods.plan import PlannedContext
from codemods.reading.code.arguments import by_parameter
from codemods.reading.gradients.timm_clipping import SCALER, is_scaler, stepped_by
from codemods.reading.models.frozen import ignores_frozen
from codemods.reading.parameters.of_model import is_of_wrapped
from codemods.reading.wraps.manual import is_constructor
from codemods.reading.wraps.process_groups import is_default

CODE = "FM204"

_BECOMES = "ShardedGradScaler becomes torch.amp.GradScaler"
_GROUP = "whether gradients are finite was agreed on over its process_group, and is over the mesh of the parameters now"
_GROUP_HINT = "where the group is larger than the mesh, all-reduce `found_inf` over it before the step"
_MIXED = "it raises for an optimizer of ignored parameters and sharded ones: plain gradients beside DTensors"
_HINT = "nothing, where what is ignored is frozen; else give the ignored parameters an optimizer of their own"
_PARTED = (
    "FSDP1 let each rank decide by its own shards whether to skip a step here, which parts the ranks; on FSDP2 they"
    " decide together, and the losses differ for it"
)
_PARTED_HINT = "expect other losses than before, from the first gradient that overflows on some ranks alone"
_IGNORED = ("ignored_modules", "ignored_states")
_AMP = "torch.amp"
_PLAIN = frozenset({"torch.GradScaler", "torch.amp.GradScaler", "torch.amp.grad_scaler.GradScaler"})
_PLAIN |= {"torch.cuda.amp.GradScaler", "torch.cuda.amp.grad_scaler.GradScaler"}

_ORDER = ("device", "init_scale", "backoff_factor", "growth_factor", "growth_interval", "enabled", "process_group")
"""FSDP1's; torch's own has the same names in another order."""
_SAME_PLACE = _ORDER[:2]


def fix(node: cst.Call | Reference, ctx: PlannedContext) -> Fix | None:
    if not isinstance(node, cst.Call):
        return _of_name(node, ctx) if _is_value(node, ctx) else None
    if _is_plain(node, ctx):
        return _of_plain(node, ctx) if ctx.wrapping.calls(ctx.path) and _scales_wrapped(node, ctx) else None
    given = by_parameter(node.args, _ORDER) if ctx.fsdp1(node.func) == "ShardedGradScaler" else None
    if given is None:
        return None
    scaler, item = _written(node, ctx)
    group, kept = given.pop("process_group", None), []
    for name, argument in given.items():
        is_placed = argument.keyword is None and name in _SAME_PLACE
        kept.append(ctx.quote(argument.value) if is_placed else f"{name}={ctx.quote(argument.value)}")
    text = f"{scaler}({', '.join(kept)})"
    place = _choice_of_the_same(node, text, ctx) or node
    says = finding(CODE, Level.REWRITTEN, ctx, node, _BECOMES)
    if group is not None and not is_default(ctx, group.value):
        says = finding(CODE, Level.REVIEW, ctx, node, f"{_BECOMES}; {_GROUP}", _GROUP_HINT)
    if _ignores_parameters(ctx):
        says = finding(CODE, Level.MANUAL, ctx, node, f"{_BECOMES}; {_MIXED}", _HINT)
    return Fix([Edit(*ctx.bare_span(place), text)], [says], [item])


def _of_name(name: Reference, ctx: Context) -> Fix:
    text, item = _written(name, ctx)
    return rewritten(CODE, ctx, name, [Edit(*ctx.span(name), text)], _BECOMES, [item])


def _written(at: cst.CSTNode, ctx: Context) -> tuple[str, Import]:
    """`torch.amp.GradScaler`, or the name by which the file has it already."""
    if any(_names_scaler(line, ctx) for line in ctx.nodes(cst.ImportFrom)):
        item = ctx.named(Import(_AMP, "GradScaler"), at)
        return item.local, item
    torch = ctx.named(Import("torch"), at)
    return f"{torch.local}.amp.GradScaler", torch


def _names_scaler(line: cst.ImportFrom, ctx: Context) -> bool:
    """`from torch.amp import GradScaler`, for the whole file."""
    if line.module is None or line.relative or ctx.code(line.module) != _AMP:
        return False
    names = line.names if isinstance(ctx.scope(line), cst.Module) and not isinstance(line.names, cst.ImportStar) else ()
    return any(alias.evaluated_name == "GradScaler" and alias.asname is None for alias in names)


def _of_plain(call: cst.Call, ctx: Context) -> Fix:
    return left(CODE, Level.REVIEW, ctx, call, _PARTED, _PARTED_HINT)


def _is_plain(call: cst.Call, ctx: Context) -> bool:
    """`torch.amp.GradScaler(...)`, unless it is turned off."""
    off = [
        a for a in call.args if a.keyword is not None and a.keyword.value == "enabled" and ctx.code(a.value) == "False"
    ]
    return (ctx.dotted(call.func) in _PLAIN and not off) or is_scaler(call, ctx)


def _scales_wrapped(scaler: cst.Call, ctx: Context) -> bool:
    """Whether a scaler steps an optimizer of a wrapped model, and no sharded one stands on the other way."""
    sharded = (node for node in ctx.nodes(cst.Call) if ctx.fsdp1(node.func) == "ShardedGradScaler")
    if any(ctx.excludes(scaler, each) for each in sharded):
        return False
    for where, method in ctx.attributes("step"):
        call = where.parent(method)
        given = call.args[0].value if isinstance(call, cst.Call) and call.func is method and call.args else None
        if given is None or not any(origin.node is scaler for origin in where.origins(method.value)):
            continue
        if is_of_wrapped(given, where):
            return True
    return is_scaler(scaler, ctx) and any(is_of_wrapped(each, where) for where, each in stepped_by(scaler, ctx))


def _is_value(node: Reference, ctx: Context) -> bool:
    """Whether the class is named where any scaler's can stand: an annotation, a class test, a choice of one."""
    around = ctx.parent(node)
    if isinstance(around, (cst.Attribute, cst.AssignTarget, cst.ImportAlias, cst.AsName)):
        return False
    if isinstance(around, cst.Call) or (isinstance(around, cst.Arg) and around.keyword is node):
        return False
    if isinstance(around, cst.Arg) and isinstance(ctx.parent(around), cst.ClassDef):
        return False
    return ctx.fsdp1(node) == "ShardedGradScaler"


def _choice_of_the_same(call: cst.Call, text: str, ctx: Context) -> cst.IfExp | None:
    """`ShardedGradScaler() if sharded else torch.amp.GradScaler()`, which is no choice any more."""
    choice = ctx.parent(call)
    if not isinstance(choice, cst.IfExp) or call is choice.test:
        return None
    other = choice.orelse if call is choice.body else choice.body
    return choice if ctx.plain(text) == ctx.code(other) and _is_asked_freely(choice.test) else None


def _is_asked_freely(test: cst.BaseExpression) -> bool:
    """Whether a condition does nothing but to be true or false."""
    if isinstance(test, cst.UnaryOperation):
        return _is_asked_freely(test.expression)
    return isinstance(test, (cst.Name, cst.Attribute))


def _ignores_parameters(ctx: PlannedContext) -> bool:
    """Whether a constructor call of a script that runs this file names what it ignores, and that is not seen to be
    frozen."""
    wraps = [ctx.plan.wraps[call] for _, call in ctx.wrapping.calls(ctx.path) if call in ctx.plan.wraps]
    drafts = [wrap.draft for wrap in wraps if wrap.draft is not None]
    if any(draft.ignores and not ignores_frozen(draft.file, draft.call) for draft in drafts):
        return True
    given = [(where, call, name) for name in _IGNORED for where, call in ctx.passing(name) if _runs_here(where, ctx)]
    values = [
        (where, argument.value)
        for where, call, name in given
        for argument in call.args
        if is_constructor(where, call) and argument.keyword is not None and argument.keyword.value == name
        if not ignores_frozen(where, call)
    ]
    return any(not origin.is_none for where, value in values for origin in where.origins(value))


def _runs_here(where: Context, ctx: Context) -> bool:
    return where.path == ctx.path or ctx.wrapping.runs_with(ctx.path, where.path)


RULE: Rule[cst.Call | Reference] = Rule(
    CODE,
    "sharded-grad-scaler",
    __doc__,
    nodes=(cst.Call, cst.Name, cst.Attribute),
    fix=fix,
    functions=("GradScaler", SCALER),
)
