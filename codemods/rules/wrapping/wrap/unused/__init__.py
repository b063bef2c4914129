"""Parameters that may get no gradient: FSDP1's flat gradient held zeros for them.

So weight decay reached them, and ranks could use different ones. FSDP2 skips them, and its ranks wait for each other
for ever, or die, where they disagree. torch 2.13 can do as FSDP1 did.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import enclosing, is_without_gradients
from codemods.reading.code.once import once
from codemods.reading.code.shapes import only_target
from codemods.reading.models.class_layout import model_classes, sharded_classes, with_bases
from codemods.reading.models.makeup import makeup, may_hold
from codemods.reading.wraps.wrapped import wrapped_module
from codemods.tables.versions import exists

from ..draft import Draft, Note
from .chosen_layers import asks_for_values, is_chosen_by_input, picks_some
from .held_layers import layers_and_methods
from .other_ways import leaves_by_values, leaving_layers, runs_all_or_nothing
from .unread_outputs import leaves_outputs

UNUSED = "parameters may get no gradient, which only torch 2.13 can treat as FSDP1 did"

OLDER = (
    "an older one skips them, and mixes up gradients or hangs where ranks use different parameters;"
    " before 2.10 an optimizer that has no state of theirs cannot be loaded"
)
"""Measured with torch 2.11 on a GPU: other losses from the second step on, and a reduce-scatter that never ends.

With 2.8 `set_optimizer_state_dict` raises `KeyError`; the released packages from 2.10 on ask for the name first.
"""

STOPS = "an older one, which would mix up gradients or hang, stops there"


@once
def may_lack_gradients(ctx: Context, call: cst.Call) -> bool:
    """Whether the program shows a sign of them: on its DDP way, or in the forward of the model.

    There, a class of the model runs one of its layers under a condition on what forward is given, or cuts off the
    gradient of one that it does not freeze, or gives an output that does not enter the loss, or returns before it.
    """
    if _is_said(ctx, call) or leaves_outputs(ctx, call):
        return True
    using_some = (owner for where, owner in sharded_classes(ctx, call) if _uses_some(where, owner))
    found = chain(using_some, _inner(ctx, call), _leaving(ctx, call))
    return any(owner not in _run_whole_or_not(ctx, call) for owner in found)


def _is_said(ctx: Context, call: cst.Call) -> bool:
    return any(_is_ddp_of(where, ddp, ctx, call) for where, ddp in ctx.passing("find_unused_parameters"))


@once
def _is_of_root_alone(ctx: Context, call: cst.Call) -> bool:
    """Whether it is the model's own class that chooses. A unit that it does not run had no zeros under FSDP1."""
    if _is_said(ctx, call):
        return False
    models = [owner for _, owner in model_classes(ctx, call)]
    units = [(where, owner) for where, owner in sharded_classes(ctx, call) if owner not in models]
    spared = _run_whole_or_not(ctx, call)
    if any(_uses_some(where, owner) and owner not in spared for where, owner in units):
        return False
    inner = [owner for owner in (*_inner(ctx, call), *_leaving(ctx, call)) if owner not in spared]
    return not any(owner is unit or owner in may_hold(where, unit) for owner in inner for where, unit in units)


@once
def _run_whole_or_not(ctx: Context, call: cst.Call) -> set[cst.ClassDef]:
    """The classes of units that run all of their layers or none: what is None then was None under FSDP1."""
    models = [owner for _, owner in model_classes(ctx, call)]
    units = [(where, owner) for where, owner in sharded_classes(ctx, call) if owner not in models]
    parts = [each for each in units if not _runs_whole_or_not(*each)]
    return {owner for _, owner in units} - {base for each in parts for _, base in with_bases(*each)}


@once
def _runs_whole_or_not(ctx: Context, owner: cst.ClassDef) -> bool:
    return not (_cuts_off(ctx, owner) or picks_some(ctx, owner)) and runs_all_or_nothing(ctx, owner)


def _leaving(ctx: Context, call: cst.Call) -> Iterator[cst.ClassDef]:
    """The classes of which one way through `forward` leaves out a layer: the model's own, and what that calls.

    Where a throw of the dice decides, or what a tensor holds, any class inside of the model.
    """
    for owner in model_classes(ctx, call):
        yield from leaving_layers(ctx, call, owner)
    yield from (owner for where, owner in makeup(ctx, call).classes if leaves_by_values(where, owner))


def _inner(ctx: Context, call: cst.Call) -> Iterator[cst.ClassDef]:
    """The classes inside of a model that run some of several layers by what they are given.

    Where its class is found by a name, that may be any that the program has.
    """
    made = makeup(ctx, call)
    classes = _any_models(ctx) if made.is_by_name else made.classes
    yield from (owner for where, owner in classes if picks_some(where, owner))


def _any_models(ctx: Context) -> Iterator[tuple[Context, cst.ClassDef]]:
    """The classes with a `forward` that some script loads together with this file."""
    for where in ctx.files("forward"):
        if ctx.wrapping.runs_with(ctx.path, where.path):
            yield from ((where, each) for each in where.nodes(cst.ClassDef) if "forward" in _methods(each))


def _methods(owner: cst.ClassDef) -> set[str]:
    return {each.name.value for each in owner.body.body if isinstance(each, cst.FunctionDef)}


@once
def _uses_some(ctx: Context, owner: cst.ClassDef) -> bool:
    return is_chosen_by_input(ctx, owner) or _cuts_off(ctx, owner)


def _differ_by_rank(ctx: Context, call: cst.Call) -> bool:
    """Whether ranks use different ones, as soon as their batches differ: what torch before 2.13 must not train."""
    classes = [each for each in sharded_classes(ctx, call) if is_chosen_by_input(*each)]
    classes += [each for each in makeup(ctx, call).classes if picks_some(*each) or leaves_by_values(*each)]
    return any(asks_for_values(*each) for each in classes)


def reduce_unused(made: Draft) -> None:
    """Say that they count as zero, where torch can."""
    if not may_lack_gradients(made.file, made.call):
        return
    comment = "# Parameters without a gradient count as zero, as with FSDP1.\n"
    own = ", recurse=False" if _is_of_root_alone(made.file, made.call) else ""
    line = f"{made.model}.set_reduce_scatter_unused_params(True{own})"
    if exists("set_reduce_scatter_unused_params", made.file.options.torch_version):
        pass
    elif _differ_by_rank(made.file, made.call):
        line = f"{line}  # torch 2.13"
        made.notes.append(Note(UNUSED, f"run it on torch 2.13 or newer: {STOPS}"))
    else:
        line = f'if hasattr({made.model}, "set_reduce_scatter_unused_params"):  # torch 2.13\n    {line}'
        made.notes.append(Note(UNUSED, f"run it on torch 2.13 or newer: {OLDER}"))
    made.after.append(comment + line)


def _is_ddp_of(where: Context, ddp: cst.Call, ctx: Context, call: cst.Call) -> bool:
    """Whether `DDP(model, find_unused_parameters=True)` is seen, or may be, to wrap the model that FSDP wraps."""
    flags = (a.value for a in ddp.args if a.keyword is not None and a.keyword.value == "find_unused_parameters")
    if not any(isinstance(flag, cst.Name) and flag.value == "True" for flag in flags):
        return False
    models = [(where, wrapped_module(ddp)), (ctx, wrapped_module(call))]
    if where is ctx and ctx.scope(ddp) is ctx.scope(call) and len({m and ctx.code(m) for _, m in models}) == 1:
        return True  # the same variable, in another branch
    made = [
        {origin.node for origin in file.origins(model) if isinstance(origin.node, cst.Call)}
        for file, model in models
        if model is not None
    ]
    return len(made) < 2 or not all(made) or not made[0].isdisjoint(made[1])


def _cuts_off(ctx: Context, owner: cst.ClassDef) -> bool:
    """`self.embed(x).detach()`, and `self.embed(x)` under `torch.no_grad()`: a layer that trains nowhere else."""
    layers, methods = layers_and_methods(ctx, owner)
    if "forward" not in methods:
        return False
    for layer in layers:
        held = [(each.ctx, each.ctx.parent(node)) for each in methods.values() for node in each.uses_of(layer)]
        if held and all(isinstance(use, cst.Call) and _is_cut_off(use, where) for where, use in held):
            return True
    return False


def _is_cut_off(call: cst.Call, ctx: Context) -> bool:
    return _is_detached(call, ctx) or is_without_gradients(call, ctx) or _is_cut_off_by_name(ctx.parent(call), ctx)


def _is_detached(value: cst.CSTNode, ctx: Context) -> bool:
    holder = ctx.parent(value)
    return isinstance(holder, cst.Attribute) and holder.attr.value == "detach"


def _is_cut_off_by_name(made: cst.CSTNode | None, ctx: Context) -> bool:
    """`x = self.embed(x)` where all uses of that are `x.detach()`, or `x = x.detach()` follows under a condition."""
    target = only_target(made) if isinstance(made, cst.Assign) else None
    uses = ctx.uses(made) if made is not None and isinstance(target, cst.Name) else ()
    detached = [use for use in uses if _is_detached(use, ctx)]
    again = (enclosing(ctx, use, cst.Assign) for use in detached)
    return bool(uses) and (
        len(detached) == len(uses)
        or any(each is not None and ctx.code(each.targets[0].target) == ctx.code(detached[0]) for each in again)
    )
