"""Parameters that may get no gradient: FSDP1's flat gradient held zeros for them.

So weight decay reached them, and ranks could use different ones. FSDP2 skips them, and its ranks wait for each other
for ever, or die, where they disagree. torch 2.13 can do as FSDP1 did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import libcst as cst

from codemods.api import Context
from codemods.reading.class_layout import model_classes, sharded_classes
from codemods.reading.enclosing import is_without_gradients
from codemods.reading.makeup import makeup, may_hold
from codemods.reading.places import base, bound, place
from codemods.reading.wrapped import wrapped_module
from codemods.tables.layers import BARE
from codemods.tables.versions import exists

from .draft import Draft, Note

UNUSED = "parameters may get no gradient, which only torch 2.13 can treat as FSDP1 did"
_ASKED = (cst.Comparison, cst.BooleanOperation, cst.UnaryOperation, cst.IfExp)
_RANDOM = ("random.", "numpy.random.", "torch.rand", "torch.bernoulli")


def may_lack_gradients(ctx: Context, call: cst.Call) -> bool:
    """Whether the program shows a sign of them: on its DDP way, or in the forward of the model.

    There, a class of the model runs one of its layers under a condition on what forward is given, or cuts off the
    gradient of one that it does not freeze.
    """
    uses_some = any(_uses_some(*each) for each in sharded_classes(ctx, call))
    return uses_some or _is_said(ctx, call) or any(_inner(ctx, call))


def _is_said(ctx: Context, call: cst.Call) -> bool:
    return any(_is_ddp_of(where, ddp, ctx, call) for where, ddp in ctx.passing("find_unused_parameters"))


def _is_of_root_alone(ctx: Context, call: cst.Call) -> bool:
    """Whether it is the model's own class that chooses. A unit that it does not run had no zeros under FSDP1."""
    if _is_said(ctx, call):
        return False
    models = [owner for _, owner in model_classes(ctx, call)]
    units = [(where, owner) for where, owner in sharded_classes(ctx, call) if owner not in models]
    if any(_uses_some(where, owner) for where, owner in units):
        return False
    return not any(owner in may_hold(where, unit) for owner in _inner(ctx, call) for where, unit in units)


def _inner(ctx: Context, call: cst.Call) -> Iterator[cst.ClassDef]:
    """The classes inside of a model that pick one of several layers by what they are given."""
    for where, owner in makeup(ctx, call).classes:
        methods = {node.name.value: node for node in owner.body.body if isinstance(node, cst.FunctionDef)}
        if {"__init__", "forward"} <= methods.keys():
            uses = _uses_of(_layers(where, methods["__init__"]), methods["forward"], where)
            given = _given(methods["forward"], where)
            if any(found and all(_is_picked(where.parent(use), given, where) for use in found) for found in uses):
                yield owner


def _uses_of(layers: Iterable[str], method: cst.FunctionDef, ctx: Context) -> Iterator[list[cst.Attribute]]:
    named = [node for node in ctx.inside(method.body) if isinstance(node, cst.Attribute)]
    yield from ([node for node in named if place(node) == layer] for layer in layers)


def _uses_some(ctx: Context, owner: cst.ClassDef) -> bool:
    return _is_chosen_by_input(ctx, owner) or _cuts_off(ctx, owner)


def reduce_unused(made: Draft) -> None:
    """Say that they count as zero, where torch can."""
    if not may_lack_gradients(made.file, made.call):
        return
    comment = "# Parameters without a gradient count as zero, as with FSDP1.\n"
    own = ", recurse=False" if _is_of_root_alone(made.file, made.call) else ""
    line = f"{made.model}.set_reduce_scatter_unused_params(True{own})"
    if not exists("set_reduce_scatter_unused_params", made.file.options.torch_version):
        line = f'if hasattr({made.model}, "set_reduce_scatter_unused_params"):  # torch 2.13\n    {line}'
        # An older torch trains otherwise, or hangs where ranks use different parameters.
        made.notes.append(Note(UNUSED, "run it on torch 2.13 or newer"))
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


def _is_chosen_by_input(ctx: Context, owner: cst.ClassDef) -> bool:
    methods = {node.name.value: node for node in owner.body.body if isinstance(node, cst.FunctionDef)}
    init = methods.pop("__init__", None)
    if "forward" not in methods or init is None:
        return False
    return any(_is_reached_by_choice(layer, methods, ctx) for layer in _layers(ctx, init))


def _is_reached_by_choice(layer: str, methods: dict[str, cst.FunctionDef], ctx: Context) -> bool:
    """Whether one method alone runs a layer, for some of what it is given, or another one calls that method so."""
    seen = {"forward"}
    while True:
        found = {
            name: [node for node in ctx.inside(method.body) if isinstance(node, cst.Attribute) and place(node) == layer]
            for name, method in methods.items()
        }
        using = [name for name, uses in found.items() if uses]
        if len(using) != 1:
            return False
        if _is_chosen_in(methods[using[0]], found[using[0]], ctx):
            return True
        if using[0] in seen:
            return False
        seen.add(using[0])
        layer = f"self.{using[0]}"


def _is_chosen_in(method: cst.FunctionDef, uses: list[cst.Attribute], ctx: Context) -> bool:
    """Whether a method runs a layer for some of what it is given."""
    given = _given(method, ctx)
    if _is_under_a_choice(uses, method, given, ctx):
        return True
    return all(_is_picked(ctx.parent(use), given, ctx) or _is_skipped(use, method, given, ctx) for use in uses)


def _is_under_a_choice(
    uses: Sequence[cst.CSTNode], around: cst.FunctionDef | cst.For, given: set[str], ctx: Context
) -> bool:
    choices = [node for node in ctx.inside(around.body) if isinstance(node, (cst.If, cst.IfExp))]
    return any(_is_only_under(ctx, uses, choice, given) for choice in choices)


def _given(method: cst.FunctionDef, ctx: Context) -> set[str]:
    """What a method is given, and each item of it: `for task in tasks`, `for name, x in inputs.items()`.

    What is drawn at random, and what is asked of either: `has_image = image is not None`.
    """
    given = {param.name.value for param in method.params.params[1:]}
    for node in ctx.inside(method.body):
        if isinstance(node, (cst.For, cst.CompFor)) and base(node.iter) in given:
            given |= set(bound(node.target))
        elif isinstance(node, cst.Assign) and isinstance(node.targets[0].target, cst.Name):
            is_asked = isinstance(node.value, _ASKED) and _depends(node.value, given, ctx)
            if is_asked or _draws(node.value, ctx):
                given.add(node.targets[0].target.value)
    return given


def _depends(test: cst.CSTNode, given: set[str], ctx: Context) -> bool:
    """Whether it is another for other inputs, or for another throw of the dice."""
    return any((isinstance(node, cst.Name) and node.value in given) or _draws(node, ctx) for node in ctx.inside(test))


def _draws(node: cst.CSTNode, ctx: Context) -> bool:
    """`random.random()`, `np.random.rand()`, `torch.rand(1)`."""
    return isinstance(node, cst.Call) and (ctx.dotted(node.func) or "").startswith(_RANDOM)


def _is_skipped(use: cst.CSTNode, method: cst.FunctionDef, given: set[str], ctx: Context) -> bool:
    """Whether a loop over a list of layers leaves some out: `if i == skipped: continue`, `for … if name in tasks`."""
    for inner, loop in pairwise((use, *ctx.ancestors(use))):
        if isinstance(loop, cst.CompFor) and inner is loop.iter:
            return any(_depends(each.test, given, ctx) for each in loop.ifs)
        if isinstance(loop, cst.For) and inner is loop.iter:
            names = set(bound(loop.target))
            named = [node for node in ctx.inside(loop.body) if isinstance(node, cst.Name) and node.value in names]
            run = [node for node in named if isinstance(ctx.parent(node), (cst.Call, cst.Arg))]
            return bool(run) and (_is_under_a_choice(run, loop, given, ctx) or _is_left_early(loop, run, given, ctx))
        if loop is method:
            break
    return False


def _is_left_early(loop: cst.For, run: Sequence[cst.CSTNode], given: set[str], ctx: Context) -> bool:
    """`if i > last: break`, and `continue` above all that runs a layer."""
    is_above = True
    for statement in loop.body.body:
        is_above = is_above and not any(statement in set(ctx.ancestors(each)) for each in run)
        if isinstance(statement, cst.If) and _depends(statement.test, given, ctx):
            left = (cst.Break, cst.Continue) if is_above else cst.Break
            if any(isinstance(node, left) for node in ctx.inside(statement.body)):
                return True
    return False


def _is_picked(use: cst.CSTNode | None, given: set[str], ctx: Context) -> bool:
    """`self.experts[task]`, where forward is given `task`."""
    if not isinstance(use, cst.Subscript):
        return False
    return any(isinstance(node, cst.Name) and node.value in given for part in use.slice for node in ctx.inside(part))


def _cuts_off(ctx: Context, owner: cst.ClassDef) -> bool:
    """`self.embed(x).detach()`, and `self.embed(x)` under `torch.no_grad()`: a layer that trains nowhere else."""
    methods = {node.name.value: node for node in owner.body.body if isinstance(node, cst.FunctionDef)}
    if "forward" not in methods or "__init__" not in methods:
        return False
    named = [node for node in ctx.inside(owner.body) if isinstance(node, cst.Attribute)]
    for layer in _layers(ctx, methods["__init__"]):
        held = [ctx.parent(node) for node in named if place(node) == layer]
        uses = [holder for holder in held if not isinstance(holder, cst.AssignTarget)]
        if uses and all(isinstance(use, cst.Call) and _is_cut_off(use, ctx) for use in uses):
            return True
    return False


def _is_cut_off(call: cst.Call, ctx: Context) -> bool:
    holder = ctx.parent(call)
    is_detached = isinstance(holder, cst.Attribute) and holder.attr.value == "detach"
    return is_detached or is_without_gradients(call, ctx)


def _layers(ctx: Context, init: cst.FunctionDef) -> Iterator[str]:
    """`self.head` of `self.head = nn.Linear(2, 2)`."""
    for node in ctx.inside(init.body):
        if isinstance(node, cst.Assign) and isinstance(node.value, cst.Call):
            made = ctx.dotted(node.value.func) or ""
            found = place(node.targets[0].target)
            if found is not None and made.startswith("torch.nn.") and not BARE.search(made.rsplit(".", 1)[-1]):
                yield found


def _is_only_under(ctx: Context, uses: Sequence[cst.CSTNode], choice: cst.If | cst.IfExp, given: set[str]) -> bool:
    """Whether all uses stand in one branch of a choice that is made by an argument."""
    if not _depends(choice.test, given, ctx):
        return False
    branches: list[cst.CSTNode] = [choice.body, *([choice.orelse] if choice.orelse is not None else [])]
    return any(all(branch in {use, *ctx.ancestors(use)} for use in uses) for branch in branches)
