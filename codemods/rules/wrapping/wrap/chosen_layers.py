"""Layers that a model runs for some of what it is given, and not for the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import libcst as cst

from codemods.api import Context
from codemods.reading.class_layout import with_bases
from codemods.reading.enclosing import enclosing
from codemods.reading.once import once
from codemods.reading.places import base, bound, place
from codemods.reading.shapes import called_on, is_call_to
from codemods.reading.words import is_name, last_name, words
from codemods.tables.layers import BARE

_MADE = 3
"""How many classes and functions, each called by the one before, are read for a layer."""
_ASKED = (cst.Comparison, cst.BooleanOperation, cst.UnaryOperation, cst.IfExp)
_SETTINGS = frozenset({"args", "cfg", "conf", "config", "hparams", "opt", "opts", "options", "settings"})
_OF_VALUES = frozenset({"all", "any", "item", "max", "mean", "min", "nonzero", "numel", "sum", "tolist"})
"""What is asked of a tensor, and is another for another batch."""
_RANDOM = ("random.", "numpy.random.", "torch.rand", "torch.bernoulli")


@dataclass(frozen=True)
class Method:
    """A method of a model's class; each layer of the class asks for the same of it."""

    ctx: Context
    node: cst.FunctionDef

    @cached_property
    def uses(self) -> Mapping[str, Sequence[cst.Attribute]]:
        """Its attributes, by what they read: `self.head`."""
        found: dict[str, list[cst.Attribute]] = {}
        for node in self.ctx.inside(self.node.body):
            read = place(node) if isinstance(node, cst.Attribute) else None
            if read is not None and isinstance(node, cst.Attribute):
                found.setdefault(read, []).append(node)
        return found

    @cached_property
    def given(self) -> set[str]:
        return _given(self.node, self.ctx)

    def uses_of(self, layer: str) -> Sequence[cst.Attribute]:
        return self.uses.get(layer, ())


def is_chosen_by_input(ctx: Context, owner: cst.ClassDef) -> bool:
    layers, methods = layers_and_methods(ctx, owner)
    if "forward" not in methods:
        return False
    if any(_is_reached_by_choice(layer, methods) for layer in layers) or _is_found_by_name(layers, methods):
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
    uses = map(forward.uses_of, layers)
    return any(found and all(_is_left_out(use, forward) for use in found) for found in uses)


def asks_for_values(ctx: Context, owner: cst.ClassDef) -> bool:
    """Whether what a tensor holds decides, as `if mask.any():`: ranks have other batches, and use other parameters."""
    layers, methods = layers_and_methods(ctx, owner)
    return any(
        isinstance(node, (cst.If, cst.IfExp)) and _reads_values(node.test, each) and _runs_or_skips(node, each, layers)
        for each in methods.values()
        for node in each.ctx.inside(each.node.body)
    )


def _reads_values(test: cst.BaseExpression, method: Method) -> bool:
    calls = (node for node in method.ctx.inside(test) if isinstance(node, cst.Call))
    return any(isinstance(call.func, cst.Attribute) and call.func.attr.value in _OF_VALUES for call in calls)


def _runs_or_skips(choice: cst.If | cst.IfExp, method: Method, layers: Sequence[str]) -> bool:
    """Whether a branch has a layer in it, calls what a variable holds, as that of a loop, or goes on with the next."""
    ctx = method.ctx
    names: set[str] = set()
    for node in ctx.inside(method.node.body):
        if isinstance(node, (cst.Assign, cst.For, cst.CompFor)):
            names |= set(bound(node.targets[0].target if isinstance(node, cst.Assign) else node.target))
    inside = (node for branch in (choice.body, choice.orelse) if branch is not None for node in ctx.inside(branch))
    return any(
        isinstance(node, cst.Continue)
        or (isinstance(node, cst.Attribute) and place(node) in layers)
        or (isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in names)
        for node in inside
    )


@once
def layers_and_methods(ctx: Context, owner: cst.ClassDef) -> tuple[list[str], dict[str, Method]]:
    """What a class has of them, with what its bases have."""
    layers: list[str] = []
    methods: dict[str, Method] = {}
    for where, each in with_bases(ctx, owner):
        for node in each.body.body:
            if isinstance(node, cst.FunctionDef):
                methods.setdefault(node.name.value, Method(where, node))
                layers += _layers_of(where, node) if node.name.value == "__init__" else ()
    methods.pop("__init__", None)
    return layers, methods


def _layers_of(ctx: Context, init: cst.FunctionDef) -> Iterator[str]:
    """`self.head` of `self.head = nn.Linear(2, 2)` and of `self.head = Head()`; not of what has no parameters."""
    for node in ctx.inside(init.body):
        if isinstance(node, cst.Assign):
            pairs = _pairs(node.targets[0].target, node.value)
            yield from (layer for layer, made in pairs if layer is not None and _has_parameters(made, ctx))


def _pairs(target: cst.BaseExpression, value: cst.BaseExpression) -> Iterator[tuple[str | None, cst.BaseExpression]]:
    """Both of `self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)`."""
    if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
        for each, made in zip(target.elements, value.elements, strict=False):
            yield place(each.value), made.value
    else:
        yield place(target), value


def _has_parameters(made: cst.BaseExpression, ctx: Context, depth: int = _MADE) -> bool:
    """Whether torch makes a layer of its parameters, or a class or function of the program does that makes some."""
    if not isinstance(made, cst.Call):
        return False
    dotted = ctx.dotted(made.func)
    if dotted is not None:
        return dotted.startswith("torch.nn.") and not BARE.search(dotted.rsplit(".", 1)[-1])
    makers = [(o.file, o.node) for o in ctx.origins(made.func) if isinstance(o.node, (cst.ClassDef, cst.FunctionDef))]
    return depth > 0 and any(
        _has_parameters(call, where, depth - 1)
        for where, maker in makers
        for call in where.inside(maker.body)
        if isinstance(call, cst.Call)
    )


def _is_found_by_name(layers: list[str], methods: dict[str, Method]) -> bool:
    """`getattr(self, task)(x)`, where a layer is read in no other way."""
    if all(any(method.uses_of(layer) for method in methods.values()) for layer in layers):
        return False
    return any(
        is_call_to(node, "getattr") and len(node.args) == 2 and _depends(node.args[1], method.given, method.ctx)
        for method in methods.values()
        for node in method.ctx.inside(method.node.body)
    )


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


def _is_left_out(use: cst.CSTNode, method: Method) -> bool:
    """Whether a list of layers is read to run some of them."""
    given, ctx = method.given, method.ctx
    holder = ctx.parent(use)
    if isinstance(holder, (cst.DictElement, cst.Element)):  # `{"a": self.a, "b": self.b}[kind]`
        display = ctx.parent(holder)
        return display is not None and _is_picked(ctx.parent(display), given, ctx)
    return _is_picked(holder, given, ctx) or _is_skipped(use, method, ctx)


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
    if not _depends(asked, given, ctx):
        return False
    return any(_stands_in(ctx, uses, branch) for branch in branches)


def _stands_in(ctx: Context, uses: Sequence[cst.CSTNode], branch: cst.CSTNode | None) -> bool:
    return all(branch in {use, *ctx.ancestors(use)} for use in uses)


def _given(method: cst.FunctionDef, ctx: Context) -> set[str]:
    """What a method is given, and each item of it: `for task in tasks`, `for name, x in inputs.items()`.

    What is taken out of it (`inputs.get("image")`) or drawn at random, and what is asked of either: `has_image = image
    is not None`.
    """
    star = method.params.star_kwarg
    given = {param.name.value for param in (*method.params.params[1:], *([star] if star is not None else []))}
    for node in ctx.inside(method.body):
        if isinstance(node, (cst.For, cst.CompFor)) and base(node.iter) in given:
            given |= set(bound(node.target))
        elif isinstance(node, cst.Assign) and isinstance(node.targets[0].target, cst.Name):
            is_asked = isinstance(node.value, _ASKED) and _depends(node.value, given, ctx)
            if is_asked or _is_taken_out(node.value, given) or _draws(node.value, ctx):
                given.add(node.targets[0].target.value)
    return given


def _is_taken_out(made: cst.BaseExpression, given: set[str]) -> bool:
    """`inputs["image"]`, `kwargs.get("image")`, `kwargs.pop("image", None)`."""
    owner = made.value if isinstance(made, cst.Subscript) else called_on(made, "get", "pop")
    return isinstance(owner, cst.Name) and owner.value in given


def _depends(test: cst.CSTNode, given: set[str], ctx: Context) -> bool:
    """Whether it is another for other inputs, or for another throw of the dice."""
    return any((isinstance(node, cst.Name) and node.value in given) or _draws(node, ctx) for node in ctx.inside(test))


def _draws(node: cst.CSTNode, ctx: Context) -> bool:
    """`random.random()`, `np.random.rand()`, `torch.rand(1)`, `self.rng.random()`."""
    if not isinstance(node, cst.Call):
        return False
    return (ctx.dotted(node.func) or "").startswith(_RANDOM) or last_name(node.func) == "random"


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
            given = _made_of(method.node, given, ctx)
        if isinstance(loop, cst.CompFor) and inner is loop.iter:
            return any(_depends(each.test, given, ctx) for each in loop.ifs)
        if isinstance(loop, cst.For) and inner is loop.iter:
            names = set(bound(loop.target))
            named = [node for node in ctx.inside(loop.body) if isinstance(node, cst.Name) and node.value in names]
            run = [node for node in named if isinstance(ctx.parent(node), (cst.Call, cst.Arg))]
            return bool(run) and (_is_under_a_choice(run, loop, given, ctx) or _is_left_early(loop, run, given, ctx))
        if loop is method.node:
            break
    return False


def _made_of(method: cst.FunctionDef, given: set[str], ctx: Context) -> set[str]:
    """What is computed of what a method is given, too: `mask = chosen == index`."""
    found = set(given)
    for node in ctx.inside(method.body):
        if isinstance(node, cst.Assign) and _depends(node.value, found, ctx):
            found |= set(bound(node.targets[0].target))
    return found


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
