"""**What it does.** Rewrites `FullyShardedDataParallel(model, ...)` into `fully_shard` calls: one for each module
that the auto-wrap policy would have picked, children first, and one for the model itself.

**Why.** FSDP2 shards a module in place and has no wrapper, no policies and no flat parameters. Each argument of the
constructor either has a counterpart (`mixed_precision`, `sharding_strategy`, `cpu_offload`, `device_mesh`), is a step
before sharding (`sync_module_states`, `device_id`, `buffer_dtype`), or is not needed any more (`use_orig_params`,
`limit_all_gathers`, `backward_prefetch`, `forward_prefetch`).

## Example

```python
from functools import partial

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


def shard(model, Block):
    return FSDP(model, auto_wrap_policy=partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}))
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard


def shard(model, Block):
    for module in model.modules():
        if module is not model and isinstance(module, Block):
            fully_shard(module)
    return fully_shard(model)
```

## Fix safety

The shard groups, the number of all-gathers and reduce-scatters and the losses are those of FSDP1, measured on
torch 2.13. Where a value is only known at run time, the call becomes `shard_model(...)` of the support module,
which takes the same arguments and decides there. `reshard_after_forward` is left out for FULL_SHARD because FSDP1
keeps the root gathered after forward, as FSDP2 does by default. FSDP2 reads a mesh of two dimensions as (replicate,
shard), which FSDP1 did for the hybrid strategies alone: otherwise its first dimension is what is passed on. Under a
hybrid strategy whose shard groups are of one rank FSDP1 switched to NO_SHARD over that rank, and trained a model of its
own on each; FSDP2 averages their gradients, as the strategy promises.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
- https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import libcst as cst

from codemods.api import (
    SUPPORT,
    Context,
    Edit,
    Emission,
    Finding,
    Fix,
    Import,
    Level,
    NotStatic,
    Origin,
    Raise,
    Rule,
    finding,
    left,
    rewritten,
)
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import call_by, call_given, contains, enclosing
from codemods.reading.edits.layout import removal
from codemods.reading.edits.raises import is_stopped
from codemods.reading.optimizers.prewrap import Relocation, relocations
from codemods.reading.wraps.chosen_class import chosen_class
from codemods.reading.wraps.manual import (
    block_of,
    class_given,
    context_of,
    first_factory,
    is_constructor,
    is_factory,
    is_made_each_time,
    is_map,
    is_written_out,
    opening_of,
)
from codemods.reading.wraps.precision import SAVED_BUFFERS, has_buffer_dtype
from codemods.reading.wraps.wrapped import same_unit_inside, wrapped_module
from codemods.tables.arguments import DROPPED, FORMER, POSITIONS
from codemods.tables.versions import exists

from .draft import Draft
from .emit import edits, is_in_place, is_put_back, is_repeatable, place_of, root_call
from .given import NotFSDP1
from .places.above_loop import edits_above, hoist
from .places.as_function import context_edits, function_edit
from .places.hidden_call import in_function
from .plan import draft, draft_context, draft_factory
from .settings.fixed_parameters import of_fixed_parameters
from .settings.unused_settings import unused_settings
from .unused import UNUSED, may_lack_gradients

CODE = "FM101"

_UNITS = "which modules become units is seen at run time: shard_model logs how many, and check --run-gpus compares them"


@dataclass(frozen=True)
class Proposal:
    """How a wrap site could be rewritten, before the rest of the program is looked at."""

    emission: Emission
    reason: str
    """Why it is not idiomatic, or which arguments of a call that is left are none of FSDP1's."""
    reads: frozenset[cst.CSTNode]
    """Places where the argument values are made, all of which must stay as they are for the support form."""
    draft: Draft | None = None
    relocations: tuple[Relocation, ...] = ()

    @property
    def rewrites(self) -> frozenset[cst.CSTNode]:
        """Definitions that change with the idiomatic form, where they stand."""
        return frozenset(self.draft.definitions if self.draft is not None else ())

    @property
    def predicates(self) -> frozenset[cst.CSTNode]:
        """Those of them that are policies and become functions of a module."""
        return frozenset(self.draft.predicates if self.draft is not None else ())

    @property
    def inlines(self) -> frozenset[cst.CSTNode]:
        """Definitions that it takes over and removes."""
        return frozenset(self.draft.inlined if self.draft is not None else ())

    @property
    def parts(self) -> frozenset[cst.Call]:
        """Wrap sites that have to be rewritten idiomatically for this one to be."""
        return frozenset(self.draft.parts if self.draft is not None else ())

    @property
    def keeps(self) -> frozenset[cst.CSTNode]:
        """Places where argument values are made that the idiomatic form reads as they are."""
        return frozenset(self.draft.keeps if self.draft is not None else ())


def propose(
    ctx: Context,
    call: cst.Call,
    kept: Collection[Path],
    asked: frozenset[cst.CSTNode] = frozenset(),
    left: frozenset[cst.CSTNode] = frozenset(),
) -> Proposal:
    """Look at one wrap site by itself; nothing is done in the files that are kept.

    `asked` are the policies that become functions of a module for another wrap site, `left` the values that another one
    needs as they are.
    """
    found = (origin.node for argument in call.args for origin in _made(argument, ctx))
    reads = frozenset(node for node in found if node is not None)
    if is_factory(ctx, call) and is_written_out(ctx, call):
        return Proposal(Emission.NATIVE, "", reads)  # as its calls are
    moved = relocations(ctx, call, kept)
    if not all(each.is_possible for each in moved):
        return Proposal(Emission.SKIP, "", reads, relocations=moved)
    try:
        made = _draft(ctx, call, asked, left)
    except NotFSDP1 as unknown:
        way = Emission.SKIP if chosen_class(ctx, call) is None else Emission.SUPPORT  # another class may take it
        return Proposal(way, str(unknown), reads, relocations=moved)
    except NotStatic as undecided:
        return Proposal(Emission.SUPPORT, str(undecided), reads, relocations=moved)
    is_kept = not {"reshard_after_forward", "**"} & {*made.common_kwargs, *made.root_kwargs}
    if is_kept and _is_inner(call, ctx) and not _has_other_root(call, ctx):
        made.root_kwargs["reshard_after_forward"] = "True"  # FSDP1 kept the root, which was the unit around
    return Proposal(Emission.NATIVE, "", reads, made, moved)


def _made(argument: cst.Arg, ctx: Context) -> Sequence[Origin]:
    """Where the value of an argument is made, or the values of all in `**arguments`."""
    made = ctx.origins(argument.value)
    return [*made, *ctx.items(argument.value)] if argument.star == "**" else made


def is_left(ctx: Context, call: cst.Call) -> bool:
    """Whether an earlier run left a constructor call as it is, and put a `raise` before it."""
    return is_stopped(ctx, call, CODE)


def fix(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    if not (is_constructor(ctx, call) or is_factory(ctx, call) or ctx.plan.is_drafted(call)):
        return None
    if call not in ctx.plan.wraps:
        return None  # a partial in the place of another's argument, which is written with it
    if ctx.plan.is_native(call) and is_factory(ctx, call) and is_written_out(ctx, call):
        return _written_out(call, ctx)
    inner = same_unit_inside(ctx, call)
    if inner is None and context_of(ctx, call) is not None and ctx.plan.emission(call) is Emission.SUPPORT:
        return None  # it becomes `wrap` of the support module (FM106), or is the call of a partial of shard_model
    if ctx.plan.emission(call) is Emission.SUPPORT and not contains(ctx, call, first_factory(ctx, call)):
        return None  # it is a partial of one of shard_model
    if ctx.plan.emission(call) is Emission.SKIP:
        return _left(call, ctx)
    if inner is not None and ctx.plan.emission(inner) is not Emission.SKIP:
        return _collapsed(call, inner, ctx)
    outcome = _rewritten(call, ctx)
    return _refused(outcome) if _is_wrapped_already(call, ctx) else outcome


def _written_out(factory: cst.Call, ctx: PlannedContext) -> Fix:
    line = enclosing(ctx, factory, cst.SimpleStatementLine)
    assert line is not None
    message = "the partial goes: each of its calls becomes fully_shard, with what both are given"
    return rewritten(CODE, ctx, factory, [removal(ctx, line)], message)


def _reasons_of_calls(factory: cst.Call, ctx: PlannedContext) -> Iterator[str]:
    """Why the calls of a partial are not written out."""
    assignment = ctx.parent(factory)
    uses = ctx.uses(assignment) if isinstance(assignment, cst.Assign) else ()
    calls = [call for use in uses if (call := call_by(use, ctx)) in ctx.plan.wraps]
    own = ctx.plan.wraps[factory].reason
    yield from (reason for call in calls if call is not None and (reason := ctx.plan.wraps[call].reason) != own)


def _is_wrapped_already(call: cst.Call, ctx: Context) -> bool:
    """Whether what is wrapped is, for sure, the result of another constructor call."""
    module = wrapped_module(call) if is_constructor(ctx, call) else None
    if isinstance(module, cst.Call):
        return is_constructor(ctx, module)
    if not isinstance(module, cst.Name):  # what an attribute holds here is not followed to the statement
        return False
    made = [(origin.file, origin.node) for origin in ctx.origins(module)]
    return all(isinstance(node, cst.Call) and node is not call and is_constructor(where, node) for where, node in made)


def _is_inner(call: cst.Call, ctx: Context) -> bool:
    """Whether another constructor call around this one has the same arguments: `wrap(wrap(module))`."""
    outer = call_given(call, ctx)
    return outer is not None and same_unit_inside(ctx, outer) is call


def _has_other_root(call: cst.Call, ctx: Context) -> bool:
    """Whether the function wraps once what may be the model around: the root is that, and frees what is in it."""
    others = (each for each in ctx.calls(ctx.scope(call)) if each is not call and is_constructor(ctx, each))
    return any(not _is_inner(each, ctx) and same_unit_inside(ctx, each) is None for each in others)


def _collapsed(call: cst.Call, inner: cst.Call, ctx: PlannedContext) -> Fix:
    """The unit around held no parameter of its own: the inner one had taken them all, and was not the root.

    FSDP1 freed it after forward for that, where it keeps a root (measured on torch 2.13).
    """
    message = "of two constructor calls around one module with the same arguments the inner one stays"
    level, hint = Level.REWRITTEN, ""
    if ctx.plan.emission(inner) is Emission.SUPPORT:
        level, hint = Level.REVIEW, "model.set_reshard_after_forward(True) (torch >= 2.8) frees it as before"
        message += "; without a model around it that is sharded, it is kept until backward, and was freed after forward"
    return Fix([Edit(*ctx.bare_span(call), ctx.quote(inner))], [finding(CODE, level, ctx, call, message, hint)])


def _refused(outcome: Fix) -> Fix:
    """FSDP1 put a unit around a unit; `fully_shard` raises for a module that is sharded."""
    message, hint = "the model is wrapped a second time, which fully_shard refuses", "drop one of the two calls"
    found = (replace(each, level=Level.MANUAL, message=f"{each.message}; {message}") for each in outcome.findings)
    return replace(outcome, findings=[replace(each, hint=each.hint or hint) for each in found])


def _rewritten(call: cst.Call, ctx: PlannedContext) -> Fix:
    planned = ctx.plan.wraps[call]
    if planned.draft is None:
        return _through_support(call, ctx, next(_reasons_of_calls(call, ctx), planned.reason))
    made = planned.draft.copy()  # writing it adds imports
    if made.is_context:
        written = context_edits(made, ctx)
    elif made.is_function:
        value = call.args[0].value if is_map(call) else call
        written = [Edit(*ctx.bare_span(value), made.helper) if made.helper else function_edit(made)]
    elif made.helper and not is_in_place(made):
        written = [Edit(*ctx.bare_span(call), f"{made.helper}({ctx.quote(made.module)}{made.helper_arguments})")]
    elif made.helper or _needs_place(made, ctx, call):
        written = edits(made, place_of(ctx, call))
    else:
        written = [Edit(*ctx.bare_span(call), root_call(made))]
    written += edits_above(made, ctx)
    written += [removal(ctx, statement) for statement in (*made.dead, *unused_settings(made, ctx.plan))]
    written += [edit for where, edit in made.edits if where.path == ctx.path]
    fixed = of_fixed_parameters(made, written, ctx.plan)
    return Fix(
        edits=written,
        findings=[_finding(replace(made, notes=[*made.notes, *([fixed] if fixed else [])]), call, ctx)],
        imports=sorted(made.imports),
        elsewhere=[
            *((where, Fix(edits=[edit])) for where, edit in made.edits if where.path != ctx.path),
            *((where, Fix(imports=[item])) for where, item in made.imports_elsewhere),
        ],
    )


def _draft(ctx: Context, call: cst.Call, asked: frozenset[cst.CSTNode], left: frozenset[cst.CSTNode]) -> Draft:
    """Raises NotStatic when the call cannot be written idiomatically where it stands."""
    if is_factory(ctx, call):
        return draft_factory(ctx, call)
    if class_given(ctx, call) is not None and not (ctx.wrapping.is_in_sight and _is_around_wraps(ctx, call)):
        return draft_context(ctx, call)
    if not is_constructor(ctx, call) and chosen_class(ctx, call) is None:
        raise NotStatic("the constructor is passed on as a value")
    context = context_of(ctx, call)
    if context is not None and is_factory(ctx, context):
        context = None
    if context is not None:
        _look_at_context(context, call, ctx)
    made = draft(ctx, call, asked=asked, left=left)
    hoist(made)
    if not _needs_place(made, ctx, call):
        return made
    try:
        place = place_of(ctx, call)
    except NotStatic as hidden:
        if context is not None or _is_inner(call, ctx):
            raise
        return in_function(ctx, call, asked, left, str(hidden))
    if is_repeatable(made.module):
        return made
    is_free = place.target and not _reads(place.target, call, ctx)
    model = place.target if is_free else made.fresh("model", "sharded_model")
    again = draft(ctx, call, model, asked, left)
    hoist(again)
    said = f": {ctx.quote(place.type.annotation)}" if is_free and place.type is not None else ""
    again.before.insert(0, f"{model}{said} = {ctx.quote(made.module)}")
    return again


def _reads(target: str, call: cst.Call, ctx: Context) -> bool:
    """Whether arguments mean what the call's target is before it: `model = FSDP(Net(), device_id=model.device)`."""
    return any(
        isinstance(node, (cst.Name, cst.Attribute)) and ctx.code(node) == target
        for argument in call.args[1:]
        for node in ctx.inside(argument.value)
    )


def _is_around_wraps(ctx: Context, context: cst.Call) -> bool:
    """Whether a `wrap(module)` stands in an `enable_wrap`; where none does, a caller of the program's makes them."""
    return any(context_of(where, call) is context for where, call in ctx.wrapping.calls(ctx.path))


def _look_at_context(context: cst.Call, call: cst.Call, ctx: Context) -> None:
    """Raises NotStatic where the `enable_wrap` around a `wrap(module)` cannot be taken away."""
    if opening_of(ctx, context) is None:
        raise NotStatic("enable_wrap is entered by no `with` and no stack that is seen")
    is_alone = _is_alone(context, call, ctx)
    for argument in context.args:
        if (is_made_each_time(argument.value, ctx) and not is_alone) or not ctx.same_meaning(argument.value, call):
            raise NotStatic(f"`{ctx.code(argument.value)}` is made once for several calls of wrap")


def _is_alone(context: cst.Call, call: cst.Call, ctx: Context) -> bool:
    """Whether one `wrap(module)` is all that `enable_wrap` is for, and the first that runs in it."""
    block = block_of(ctx, context)
    if block is None or block.body.body[0] is not enclosing(ctx, call, cst.SimpleStatementLine):
        return False
    if any(isinstance(outer, cst.BaseComp) and contains(ctx, block, outer) for outer in ctx.ancestors(call)):
        return False
    return not any(
        isinstance(each, cst.Call) and context_of(ctx, each) is context and each is not call
        for each in ctx.inside(block.body)
    )


def _needs_place(made: Draft, ctx: Context, call: cst.Call) -> bool:
    """Whether anything stands before the root's `fully_shard`; if not, the call is replaced where it is."""
    has_statements = made.before or made.after or made.unit_steps or made.selector is not None
    if made.chosen is not None or has_statements or is_put_back(ctx, call):
        return True
    assignment = ctx.parent(call)
    if not isinstance(assignment, cst.Assign) or len(assignment.targets) != 1:
        return False
    # `model = FSDP(model)`: the assignment goes, since `fully_shard` works in place.
    return is_repeatable(made.module) and ctx.code(assignment.targets[0].target) == ctx.plain(made.model)


def _through_support(call: cst.Call, ctx: Context, reason: str) -> Fix:
    item = ctx.named(Import(SUPPORT, "shard_model"), call)
    callee: cst.BaseExpression = call
    while callee is call or isinstance(callee, cst.Call):
        callee = callee.func if is_constructor(ctx, callee) else callee.args[0].value
    start, end = ctx.span(callee)
    names = {"ignored_parameters": "ignored_states", **FORMER}
    renamed = [a.keyword for a in call.args if a.keyword is not None and a.keyword.value in names]
    given = [a.value for a in call.args if a.keyword is not None and a.keyword.value == "mixed_precision"]
    casts_buffers = any(has_buffer_dtype(origin) for value in given for origin in ctx.origins(value))
    level, messages = Level.REWRITTEN, [f"constructor call becomes shard_model of the support module: {reason}"]
    hints = [_UNITS] if reason.startswith("auto_wrap_policy") else []
    if casts_buffers:
        level = Level.REVIEW
        messages.append(SAVED_BUFFERS)
    if may_lack_gradients(ctx, call) and not exists("set_reduce_scatter_unused_params", ctx.options.torch_version):
        level = Level.REVIEW  # an older torch skips them, or hangs where ranks use different parameters
        messages += [UNUSED] if reason != UNUSED else []
        hints.append("run it on torch 2.13 or newer, where shard_model does as FSDP1 did")
    return Fix(
        edits=[Edit(start, end, item.local), *(Edit(*ctx.bare_span(each), names[each.value]) for each in renamed)],
        findings=[finding(CODE, level, ctx, call, "; ".join(messages), "; ".join(hints))],
        imports=[item],
    )


def _left(call: cst.Call, ctx: PlannedContext) -> Fix:
    """Stays FSDP1; code that is FSDP2 now must not be reached with such a model."""
    unknown = ctx.plan.wraps[call].reason
    if unknown:
        return _unknown(unknown, call, ctx)
    early = next(each.early for each in ctx.plan.wraps[call].relocations if not each.is_possible)
    holder = early.holders[0]
    what = "an optimizer is built before it" if holder.is_optimizer else "something holds the parameters before it"
    place = f"`{early.file.code(holder.call)}`, {early.file.path.name}:{early.file.position(holder.call)[0]}"
    message = f"constructor call is left as it is, because {what} ({place})"
    hint = (
        "build the optimizer below the wrap: FSDP2 replaces the parameters, and an older optimizer never updates them"
    )
    stopped = Raise(call, CODE, "build the optimizer below the wrap, then migrate this call", certain=True)
    return left(CODE, Level.MANUAL, ctx, call, message, hint, [stopped])


def _unknown(names: str, call: cst.Call, ctx: Context) -> Fix:
    """A changed FSDP takes them, of which only the program's author knows what it does with them."""
    message = f"constructor call is left as it is, because of {names}, which torch's FSDP does not take"
    former = [f"{name} has been {FORMER[name]} since torch 1.12" for name in names.split(", ") if name in FORMER]
    meant = [each for name in names.split(", ") for each in get_close_matches(name, POSITIONS, n=1, cutoff=0.8)]
    hint = "take it away, or do what the changed class does with it beside the call"
    hint = "; ".join(former) or (f"write {', '.join(meant)} if that is meant; else {hint}" if meant else hint)
    stopped = Raise(call, CODE, f"torch's FSDP does not take {names}: migrate this call by hand", certain=True)
    return left(CODE, Level.MANUAL, ctx, call, message, hint, [stopped])


def _finding(made: Draft, call: cst.Call, ctx: Context) -> Finding:
    """One finding a call, at the highest level that one of its arguments asks for."""
    gone = sorted(made.given & set(DROPPED))
    messages = ["constructor call becomes fully_shard" + (f" (no longer needed: {', '.join(gone)})" if gone else "")]
    if made.selector is None and not made.is_function and not ctx.wrapping.is_several(ctx.path):
        messages.append("without a policy the whole model is one unit, as it was under FSDP1")
    if made.carries_attributes:
        messages.append("what the program sets on parameters before goes over to the new ones")
    messages += [note.message for note in made.notes]
    hints = list(dict.fromkeys(note.hint for note in made.notes if note.hint))
    levels = {note.level for note in made.notes}
    level = next((each for each in (Level.MANUAL, Level.REVIEW) if each in levels), Level.REWRITTEN)
    return finding(CODE, level, ctx, call, "; ".join(messages), "; ".join(hints))


RULE = Rule(CODE, "fsdp-constructor", __doc__, nodes=(cst.Call,), fix=fix)
