"""Layers that a model runs for some of what it is given, and not for the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, takewhile

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import enclosing
from codemods.reading.code.once import once
from codemods.reading.code.places import bound, place
from codemods.reading.code.shapes import called_on, is_call_to, only_target
from codemods.reading.code.words import is_name, last_name, words
from codemods.reading.models.class_layout import with_bases

from .given_values import depends, draws, gone_over, items_bound, made_of, reads_any
from .held_layers import Method, has_parameters, layers_and_methods

_SETTINGS = frozenset({"args", "cfg", "conf", "config", "hparams", "opt", "opts", "options", "settings"})
_OF_VALUES = frozenset({"all", "any", "item", "max", "mean", "min", "nonzero", "numel", "sum", "tolist"})
"""What is asked of a tensor, and is another for another batch."""


def is_chosen_by_input(ctx: Context, owner: cst.ClassDef) -> bool:
    layers, methods = layers_and_methods(ctx, owner)
    if "forward" not in methods:
        return False
    if any(_is_reached_by_choice(layer, methods) for layer in layers) or _is_found_by_name(layers, methods):
        return True
    if _runs_a_method_by_name(layers, methods):
        return True
    return any(_is_switched(layer, methods) for layer in layers)


def _is_switched(layer: str, methods: dict[str, Method]) -> bool:
    """Whether one method alone runs a layer, under `if self.use_aux:` or as one of `self.layers[: self.active]`, which
    something sets when the model is made.
    """
    using = [method for method in methods.values() if method.uses_of(layer)]
    if len(using) != 1:
        return False
    ctx, method, uses = using[0].ctx, using[0].node, using[0].uses_of(layer)
    choices = [node for node in ctx.inside(method.body) if isinstance(node, (cst.If, cst.IfExp))]
    around = [each for each in choices if any(_stands_in(ctx, uses, part) for part in (each.body, each.orelse))]
    asked: list[cst.CSTNode] = [each.test for each in around]
    taken = [holder for use in uses if isinstance(holder := ctx.parent(use), cst.Subscript)]
    asked += [part for each in taken if len(taken) == len(uses) for part in each.slice]
    return any(asks_a_switch(each, method, ctx) for each in asked)


def asks_a_switch(test: cst.CSTNode, method: cst.FunctionDef, ctx: Context) -> bool:
    """Whether a test is about an attribute of the model that something sets when the model is made."""
    flags = [node for node in (test, *ctx.inside(test)) if isinstance(node, cst.Attribute)]
    return any(
        place(node) == f"self.{node.attr.value}" and _is_set_later(ctx, method, node.attr.value) for node in flags
    )


def decides_by_values(test: cst.BaseExpression, method: Method, methods: Mapping[str, Method]) -> bool:
    """Whether a test is about what a tensor holds or is drawn at random, there or above: `drop = torch.rand(1) < p`."""
    ctx = method.ctx
    called = (methods.get(node.attr.value) for node in ctx.inside(test) if isinstance(node, cst.Attribute))
    if any(each is not None and depends(each.node.body, set(), each.ctx) for each in called):
        return True  # `if self.is_dropped():`
    return _reads_values(test, method) or depends(test, method.thrown, ctx)


@once
def _is_set_later(ctx: Context, method: cst.FunctionDef, flag: str) -> bool:
    """Whether a model's attribute is set outside of `__init__`; of a class of another name it is another one."""
    owner = enclosing(ctx, method, cst.ClassDef)
    for where, attribute in ctx.attributes(flag) if flag != "training" else ():
        if not isinstance(where.parent(attribute), cst.AssignTarget) or words(last_name(attribute.value)) & _SETTINGS:
            continue
        function = where.scope(attribute)
        is_own = not is_name(attribute.value, "self") or enclosing(where, attribute, cst.ClassDef) is owner
        if is_own and not (isinstance(function, cst.FunctionDef) and function.name.value == "__init__"):
            return True
    return False


def picks_some(ctx: Context, owner: cst.ClassDef) -> bool:
    """Whether `forward` runs some of a list of layers, by what it is given."""
    layers, methods = layers_and_methods(ctx, owner)
    forward = methods.get("forward")
    if forward is None:
        return False
    uses: list[Sequence[cst.BaseExpression]] = [*map(forward.uses_of, layers)]
    if forward.own_by_name and any(_registers_by_name(where, each) for where, each in with_bases(ctx, owner)):
        uses.append(forward.own_by_name)
    return any(found and all(_is_left_out(use, forward) for use in found) for found in uses)


def _registers_by_name(ctx: Context, owner: cst.ClassDef) -> bool:
    """`self.add_module(f"expert_{i}", nn.Linear(2, 2))`, and `setattr` of the same."""
    for node in ctx.inside(owner.body):
        if not isinstance(node, cst.Call) or len(node.args) < 2:
            continue
        is_own = called_on(node, "add_module", "register_module") is not None or is_call_to(node, "setattr")
        *_, name, made = (argument.value for argument in node.args)
        if is_own and not isinstance(name, cst.SimpleString) and has_parameters(made, ctx):
            return True
    return False


def asks_for_values(ctx: Context, owner: cst.ClassDef) -> bool:
    """Whether what a tensor holds decides, as `if mask.any():`: ranks have other batches, and use other parameters."""
    layers, methods = layers_and_methods(ctx, owner)
    return any(_asks_for_values(method, layers) for method in methods.values())


def _asks_for_values(method: Method, layers: Sequence[str]) -> bool:
    ctx, values = method.ctx, method.values
    uses = (use for layer in layers for use in method.uses_of(layer))
    return any(_is_picked(ctx.parent(use), values, ctx) for use in uses) or any(
        (_reads_values(node.test, method) or reads_any(node.test, values, ctx)) and _runs_or_skips(node, method, layers)
        for node in ctx.inside(method.node.body)
        if isinstance(node, (cst.If, cst.IfExp, cst.CompIf))
    )


def _reads_values(test: cst.BaseExpression, method: Method) -> bool:
    calls = (node for node in method.ctx.inside(test) if isinstance(node, cst.Call))
    return any(isinstance(call.func, cst.Attribute) and call.func.attr.value in _OF_VALUES for call in calls)


def _runs_or_skips(choice: cst.If | cst.IfExp | cst.CompIf, method: Method, layers: Sequence[str]) -> bool:
    """Whether a branch has a layer in it, calls what a variable holds, as that of a loop, or goes on with the next.

    A filter stands for what its comprehension makes.
    """
    ctx = method.ctx
    names: set[str] = set()
    for node in ctx.inside(method.node.body):
        if isinstance(node, (cst.Assign, cst.For, cst.CompFor)):
            names |= set(bound(node.targets[0].target if isinstance(node, cst.Assign) else node.target))
    branches: Sequence[cst.CSTNode | None]
    if isinstance(choice, cst.CompIf):
        branches = [node for node in ctx.ancestors(choice) if isinstance(node, cst.BaseComp)][:1]
    else:
        branches = [choice.body, choice.orelse]
    inside = (node for branch in branches if branch is not None for node in ctx.inside(branch))
    return any(
        isinstance(node, cst.Continue)
        or (isinstance(node, cst.Attribute) and place(node) in layers)
        or is_call_to(node, "getattr")
        or (isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in names)
        for node in inside
    )


def _is_found_by_name(layers: list[str], methods: dict[str, Method]) -> bool:
    """`getattr(self, task)(x)`, where a layer is read in no other way."""
    if all(any(method.uses_of(layer) for method in methods.values()) for layer in layers):
        return False
    return any(
        is_call_to(node, "getattr") and len(node.args) == 2 and depends(node.args[1], method.given, method.ctx)
        for method in methods.values()
        for node in method.ctx.inside(method.node.body)
    )


def _runs_a_method_by_name(layers: list[str], methods: dict[str, Method]) -> bool:
    """`getattr(self, f"forward_{mode}")(x)`, where the methods of such names run other layers."""
    for method in methods.values():
        for call in (node for node in method.ctx.inside(method.node.body) if is_call_to(node, "getattr")):
            name = call.args[1].value if len(call.args) == 2 and is_name(call.args[0].value, "self") else None
            if not isinstance(name, cst.FormattedString) or not depends(name, method.given, method.ctx):
                continue
            first = name.parts[0]
            start = first.value if isinstance(first, cst.FormattedStringText) else ""
            found = [each for key, each in methods.items() if start and key.startswith(start)]
            if len({frozenset(layer for layer in layers if each.uses_of(layer)) for each in found}) > 1:
                return True
    return False


def _is_reached_by_choice(layer: str, methods: dict[str, Method]) -> bool:
    """Whether one method alone runs a layer, for some of what it is given, or another one calls that method so."""
    seen = {"forward"}
    while True:
        using = [name for name, method in methods.items() if method.uses_of(layer)]
        if len(using) != 1:
            return False
        if _is_chosen_in(methods[using[0]], layer):
            return True
        if using[0] in seen:
            return False
        seen.add(using[0])
        layer = f"self.{using[0]}"


def _is_chosen_in(method: Method, layer: str) -> bool:
    """Whether a method runs a layer for some of what it is given."""
    uses = method.uses_of(layer)
    if _is_under_a_choice(uses, method.node, method.given, method.ctx):
        return True
    return all(_is_left_out(use, method) for use in uses)


def _is_left_out(use: cst.BaseExpression, method: Method) -> bool:
    """Whether a list of layers is read to run some of them."""
    given, ctx = method.given, method.ctx
    holder = ctx.parent(use)
    if isinstance(holder, (cst.DictElement, cst.Element)):  # `{"a": self.a, "b": self.b}[kind]`
        display = ctx.parent(holder)
        return display is not None and _is_picked(ctx.parent(display), given, ctx)
    call = ctx.parent(holder) if isinstance(holder, cst.Arg) else None
    if call is not None and draws(call, ctx):  # `random.choice(self.branches)(x)`
        return True
    if is_call_to(call, "getattr") and len(call.args) == 2:  # `getattr(self.experts, f"expert_{i}")`
        return reads_any(call.args[1], given, ctx) or _is_skipped_by_number(use, method)
    return _is_picked(holder, given, ctx) or _is_skipped(use, method, ctx) or _is_skipped_by_number(use, method)


def _is_under_a_choice(
    uses: Sequence[cst.CSTNode], around: cst.FunctionDef | cst.For, given: set[str], ctx: Context
) -> bool:
    choices = [node for node in ctx.inside(around.body) if isinstance(node, (cst.If, cst.IfExp, cst.Match))]
    return any(_is_only_under(ctx, uses, choice, given) for choice in choices)


def _is_only_under(
    ctx: Context, uses: Sequence[cst.CSTNode], choice: cst.If | cst.IfExp | cst.Match, given: set[str]
) -> bool:
    """Whether all uses stand in one branch of a choice that is made by an argument."""
    branches: list[cst.CSTNode | None]
    if isinstance(choice, cst.Match):
        asked, branches = choice.subject, [case.body for case in choice.cases]
    else:
        asked, branches = choice.test, [choice.body, choice.orelse]
    if not depends(asked, given, ctx):
        return False
    return any(_stands_in(ctx, uses, branch) for branch in branches)


def _stands_in(ctx: Context, uses: Sequence[cst.CSTNode], branch: cst.CSTNode | None) -> bool:
    return all(branch in {use, *ctx.ancestors(use)} for use in uses)


def _is_picked(use: cst.CSTNode | None, given: set[str], ctx: Context) -> bool:
    """`self.experts[task]`, where forward is given `task`."""
    if not isinstance(use, cst.Subscript):
        return False
    return any(isinstance(node, cst.Name) and node.value in given for part in use.slice for node in ctx.inside(part))


def _is_skipped(use: cst.CSTNode, method: Method, ctx: Context) -> bool:
    """Whether a loop over a list of layers leaves some out: `if i == skipped: continue`, `for … if name in tasks`."""
    given = method.given
    for inner, loop in pairwise((use, *ctx.ancestors(use))):
        if inner is getattr(loop, "iter", None):
            given = made_of(method.node, given, ctx)
        if isinstance(loop, cst.CompFor) and inner is loop.iter:
            return _is_filtered(loop, given, ctx)
        if isinstance(loop, cst.For) and inner is loop.iter:
            names = _bound_to_layers(loop, use, ctx)
            named = [node for node in ctx.inside(loop.body) if isinstance(node, cst.Name) and node.value in names]
            run = [node for node in named if isinstance(ctx.parent(node), (cst.Call, cst.Arg))]
            if not run and any(loop.body in ctx.ancestors(each) for each in method.uses_of(place(use) or "")):
                return True  # `for name in self.experts:` runs what it reads by the name
            return bool(run) and (_is_under_a_choice(run, loop, given, ctx) or _is_left_early(loop, run, given, ctx))
        if loop is method.node:
            break
    return False


def _bound_to_layers(loop: cst.For, layers: cst.CSTNode, ctx: Context) -> set[str]:
    """`expert` of `for key, expert in self.experts.items()`, and of `for expert, mask in zip(self.experts, masks)`."""
    around = {layers, *ctx.ancestors(layers)}
    over, target = next((each for each in gone_over(loop.iter, loop.target) if each[0] in around), (None, loop.target))
    is_by_key = called_on(over, "items", "named_children") is not None
    last = target.elements[-1].value if is_by_key and isinstance(target, cst.Tuple) else target
    return set(bound(last))


def _is_filtered(loop: cst.CompFor, given: set[str], ctx: Context) -> bool:
    """Whether a comprehension leaves out some: `for e, mask in zip(self.experts, masks) if mask.any()`."""
    known = given | items_bound(loop, given, ctx)
    return any(depends(each.test, known, ctx) for each in loop.ifs)


def _is_skipped_by_number(use: cst.BaseExpression, method: Method) -> bool:
    """Whether a loop over numbers of layers leaves some out: `if counts[i] == 0: continue`, `self.experts[i](x)`.

    Or a comprehension: `self.experts[i](x) for i in range(n) if (top == i).any()`.
    """
    ctx, keys = method.ctx, _keys(use, method.ctx)
    numbers = {node.value for part in keys for node in ctx.inside(part) if isinstance(node, cst.Name)}
    around = takewhile(lambda node: node is not method.node, ctx.ancestors(use))
    loops = (each for outer in around for each in _loops_of(outer))
    loop = next((each for each in loops if numbers & set(bound(each.target))), None)
    if loop is None:
        return False
    made = made_of(method.node, method.given, ctx)
    if isinstance(loop, cst.CompFor):
        return _is_filtered(loop, made, ctx)
    uses = [each for each in method.uses_alike(use) if loop.body in ctx.ancestors(each)]
    run = [each for use_here in uses for each in _runs_of(use_here, ctx)]
    return bool(run) and (_is_under_a_choice(run, loop, made, ctx) or _is_left_early(loop, run, made, ctx))


def _loops_of(node: cst.CSTNode) -> Iterator[cst.For | cst.CompFor]:
    """A loop, and those of a comprehension."""
    if isinstance(node, cst.For):
        yield node
    head = node.for_in if isinstance(node, cst.BaseComp) else None
    while head is not None:
        yield head
        head = head.inner_for_in


def _keys(layers: cst.BaseExpression, ctx: Context) -> Sequence[cst.CSTNode]:
    """`i` of `self.experts[i]`, and `f"expert_{i}"` of `getattr(self.experts, f"expert_{i}")`."""
    holder = ctx.parent(layers)
    call = ctx.parent(holder) if isinstance(holder, cst.Arg) else None
    if is_call_to(call, "getattr"):
        return call.args[1:]
    return holder.slice if isinstance(holder, cst.Subscript) else ()


def _runs_of(use: cst.BaseExpression, ctx: Context) -> Sequence[cst.CSTNode]:
    """Where a layer is read: behind `expert = self.experts[i]`, where that is called."""
    read = ctx.parent(use)
    statement = ctx.parent((ctx.parent(read) if isinstance(read, cst.Arg) else read) or use)
    target = only_target(statement) if isinstance(statement, cst.Assign) else None
    uses = ctx.uses(statement) if isinstance(statement, cst.Assign) and isinstance(target, cst.Name) else ()
    return list(uses) or [use]


def _is_left_early(loop: cst.For, run: Sequence[cst.CSTNode], given: set[str], ctx: Context) -> bool:
    """`if i > last: break`, and `continue` above all that runs a layer."""
    is_above = True
    for statement in loop.body.body:
        is_above = is_above and not any(statement in set(ctx.ancestors(each)) for each in run)
        if isinstance(statement, cst.If) and depends(statement.test, given, ctx):
            left = (cst.Break, cst.Continue) if is_above else cst.Break
            if any(isinstance(node, left) for node in ctx.inside(statement.body)):
                return True
    return False
