"""Layers that a model runs for some of what it is given, and not for the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, takewhile

import libcst as cst

from codemods.api import Context
from codemods.reading.class_layout import with_bases
from codemods.reading.enclosing import enclosing
from codemods.reading.once import once
from codemods.reading.places import base, bound, place
from codemods.reading.shapes import called_on, is_call_to, only_target, parameter_names
from codemods.reading.words import is_name, last_name, words
from codemods.tables.layers import BARE

_MADE = 3
"""How many classes and functions, each called by the one before, are read for a layer."""
_ASKED = (cst.Comparison, cst.BooleanOperation, cst.UnaryOperation, cst.IfExp)
_SETTINGS = frozenset({"args", "cfg", "conf", "config", "hparams", "opt", "opts", "options", "settings"})
_OF_VALUES = frozenset({"all", "any", "item", "max", "mean", "min", "nonzero", "numel", "sum", "tolist"})
"""What is asked of a tensor, and is another for another batch."""
_TAKEN = frozenset({"bincount", "item", "nonzero", "tolist", "unique"})
"""What takes values out of a tensor, to go over them or to ask for one."""
_RANDOM = ("random.", "numpy.random.", "torch.rand", "torch.bernoulli")
_OF_GENERATORS = frozenset({"choice", "choices", "randint", "random", "sample"})


@dataclass(frozen=True)
class Method:
    """A method of a model's class; each layer of the class asks for the same of it."""

    ctx: Context
    node: cst.FunctionDef

    @cached_property
    def uses(self) -> Mapping[str, Sequence[cst.Attribute]]:
        """Its attributes, by what they read: `self.head`; not where layers are counted alone."""
        found: dict[str, list[cst.Attribute]] = {}
        for node in self.ctx.inside(self.node.body):
            read = place(node) if isinstance(node, cst.Attribute) else None
            if read is not None and isinstance(node, cst.Attribute) and not _is_counted(node, self.ctx):
                found.setdefault(read, []).append(node)
        return found

    @cached_property
    def given(self) -> set[str]:
        return _given(self.node, self.ctx)

    @cached_property
    def values(self) -> set[str]:
        """What holds values out of a tensor, or is computed of some: `counts = top.bincount().tolist()`."""
        return _values(self)

    @cached_property
    def thrown(self) -> set[str]:
        """The same, and what is drawn at random or computed of that."""
        return _made_of(self.node, self.values, self.ctx)

    @cached_property
    def own_by_name(self) -> Sequence[cst.BaseExpression]:
        """`self` of `getattr(self, f"expert_{i}")`."""
        calls = (node for node in self.ctx.inside(self.node.body) if is_call_to(node, "getattr"))
        return [call.args[0].value for call in calls if call.args and is_name(call.args[0].value, "self")]

    def uses_alike(self, use: cst.BaseExpression) -> Sequence[cst.BaseExpression]:
        """The uses of what this is one of."""
        return self.own_by_name if isinstance(use, cst.Name) else self.uses_of(place(use) or "")

    def uses_of(self, layer: str) -> Sequence[cst.Attribute]:
        return self.uses.get(layer, ())


def _is_counted(layers: cst.Attribute, ctx: Context) -> bool:
    """`len(self.layers)`, and `for _ in self.layers`."""
    holder = ctx.parent(layers)
    if isinstance(holder, cst.CompFor):
        return holder.iter is layers and is_name(holder.target, "_")
    return isinstance(holder, cst.Arg) and is_call_to(ctx.parent(holder), "len")


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
    if any(each is not None and _depends(each.node.body, set(), each.ctx) for each in called):
        return True  # `if self.is_dropped():`
    return _reads_values(test, method) or _depends(test, method.thrown, ctx)


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
        if is_own and not isinstance(name, cst.SimpleString) and _has_parameters(made, ctx):
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
        (_reads_values(node.test, method) or _reads(node.test, values, ctx)) and _runs_or_skips(node, method, layers)
        for node in ctx.inside(method.node.body)
        if isinstance(node, (cst.If, cst.IfExp, cst.CompIf))
    )


def _values(method: Method) -> set[str]:
    """By assignments and loops, in the order of the text."""
    ctx, found = method.ctx, set[str]()
    for node in ctx.inside(method.node.body):
        if isinstance(node, (cst.For, cst.CompFor)):
            found |= _items(node, found, ctx, drawn=False)
        elif isinstance(node, cst.Assign) and (_takes_values(node.value, ctx) or _reads(node.value, found, ctx)):
            found |= set(bound(node.targets[0].target))
    return found


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


@once
def layers_and_methods(ctx: Context, owner: cst.ClassDef) -> tuple[list[str], dict[str, Method]]:
    """What a class has of them, with what its bases have."""
    layers: list[str] = []
    methods: dict[str, Method] = {}
    for where, each in with_bases(ctx, owner):
        for node in each.body.body:
            if isinstance(node, cst.FunctionDef):
                methods.setdefault(node.name.value, Method(where, node))
                layers += _layers_of(where, node, each) if node.name.value == "__init__" else ()
    methods.pop("__init__", None)
    return layers, methods


def held_modules(ctx: Context, owner: cst.ClassDef) -> set[str]:
    """The attributes that a class reads and that may hold parameters: `fc`, and `fn` of `self.fn = fn` that is called.

    What nothing stores may have been registered, and what a library makes may be a layer.
    """
    _, methods = layers_and_methods(ctx, owner)
    plain = {"self.training"} | {
        stored
        for where, each in with_bases(ctx, owner)
        for node in where.inside(each.body)
        if isinstance(node, cst.Assign)
        for stored, made in _pairs(node.targets[0].target, node.value)
        if stored is not None and _is_plain(made, where)
    }
    reads = ((method.ctx, node) for method in methods.values() for nodes in method.uses.values() for node in nodes)
    return {
        node.attr.value
        for where, node in reads
        if is_name(node.value, "self") and node.attr.value not in methods
        if place(node) not in plain or _is_called(node, where) or _is_gone_over(node, where)
    }


def _is_plain(made: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a value is no layer, as far as it is seen by itself."""
    while isinstance(made, cst.Call) and isinstance(made.func, cst.Attribute) and isinstance(made.func.value, cst.Call):
        made = made.func.value  # `torch.Generator().manual_seed(5)`
    if not isinstance(made, cst.Call):
        return True
    if _has_parameters(made, ctx):
        return False
    dotted = ctx.dotted(made.func)
    if dotted is not None:
        return dotted.startswith(("torch.", "builtins.", "math.", "random."))
    return any(isinstance(origin.node, (cst.ClassDef, cst.FunctionDef)) for origin in ctx.origins(made.func))


def _is_called(node: cst.CSTNode, ctx: Context) -> bool:
    return getattr(ctx.parent(node), "func", None) is node


def _is_gone_over(layers: cst.CSTNode, ctx: Context) -> bool:
    """`for f in self.layers`, and `enumerate(self.layers)`."""
    holder = ctx.parent(layers)
    is_counted = isinstance(holder, cst.Arg) and is_call_to(ctx.parent(holder), "enumerate", "zip")
    return is_counted or getattr(holder, "iter", None) is layers


def _is_item(layers: cst.CSTNode, ctx: Context) -> bool:
    return isinstance(holder := ctx.parent(layers), cst.Subscript) and holder.value is layers


def _layers_of(ctx: Context, init: cst.FunctionDef, owner: cst.ClassDef) -> Iterator[str]:
    """`self.head` of `self.head = nn.Linear(2, 2)` and of `self.head = Head()`; not of what has no parameters."""
    for node in ctx.inside(init.body):
        if isinstance(node, cst.Assign):
            for layer, made in _pairs(node.targets[0].target, node.value):
                if layer is not None and (_has_parameters(made, ctx) or _is_given(layer, made, init, owner, ctx)):
                    yield layer


def _is_given(layer: str, made: cst.BaseExpression, init: cst.FunctionDef, owner: cst.ClassDef, ctx: Context) -> bool:
    """`self.fn = fn`, which the class calls or goes over, and which the program makes: `Residual(nn.Linear(4, 4))`."""
    if not isinstance(made, cst.Name) or made.value not in parameter_names(init):
        return False
    uses = (node for node in ctx.inside(owner.body) if isinstance(node, cst.Attribute) and place(node) == layer)
    is_run = any(_is_called(use, ctx) or _is_gone_over(use, ctx) or _is_item(use, ctx) for use in uses)
    return is_run and any(_has_parameters(each.node, each.file) for each in ctx.origins(made))


def _pairs(target: cst.BaseExpression, value: cst.BaseExpression) -> Iterator[tuple[str | None, cst.BaseExpression]]:
    """Both of `self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)`."""
    if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
        for each, made in zip(target.elements, value.elements, strict=False):
            yield place(each.value), made.value
    else:
        yield place(target), value


def _has_parameters(made: cst.CSTNode | None, ctx: Context, depth: int = _MADE) -> bool:
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


def _runs_a_method_by_name(layers: list[str], methods: dict[str, Method]) -> bool:
    """`getattr(self, f"forward_{mode}")(x)`, where the methods of such names run other layers."""
    for method in methods.values():
        for call in (node for node in method.ctx.inside(method.node.body) if is_call_to(node, "getattr")):
            name = call.args[1].value if len(call.args) == 2 and is_name(call.args[0].value, "self") else None
            if not isinstance(name, cst.FormattedString) or not _depends(name, method.given, method.ctx):
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
    if call is not None and _draws(call, ctx):  # `random.choice(self.branches)(x)`
        return True
    if is_call_to(call, "getattr") and len(call.args) == 2:  # `getattr(self.experts, f"expert_{i}")`
        return _reads(call.args[1], given, ctx) or _is_skipped_by_number(use, method)
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
    if not _depends(asked, given, ctx):
        return False
    return any(_stands_in(ctx, uses, branch) for branch in branches)


def _stands_in(ctx: Context, uses: Sequence[cst.CSTNode], branch: cst.CSTNode | None) -> bool:
    return all(branch in {use, *ctx.ancestors(use)} for use in uses)


def _given(method: cst.FunctionDef, ctx: Context) -> set[str]:
    """What a method is given, and each item of it: `for task in tasks`, `for name, x in inputs.items()`.

    What is taken out of it (`inputs.get("image")`), or out of a tensor (`for e in top.unique().tolist()`), or drawn at
    random, and what is asked of either: `has_image = image is not None`.
    """
    star = method.params.star_kwarg
    given = {param.name.value for param in (*method.params.params[1:], *([star] if star is not None else []))}
    for node in ctx.inside(method.body):
        if isinstance(node, (cst.For, cst.CompFor)):
            given |= _items(node, given, ctx)
        elif isinstance(node, cst.Assign) and isinstance(node.targets[0].target, cst.Name):
            asks = node.value.elt if isinstance(node.value, cst.ListComp) else node.value
            is_asked = isinstance(asks, _ASKED) and _depends(node.value, given, ctx)
            is_taken = _is_taken_out(node.value, given) or _takes_values(node.value, ctx)
            if is_asked or is_taken or _draws(node.value, ctx):
                given.add(node.targets[0].target.value)
    return given


def _items(loop: cst.For | cst.CompFor, names: set[str], ctx: Context, drawn: bool = True) -> set[str]:
    """What a loop over one of these names binds, over values out of a tensor, or over what is `drawn` at random.

    No number that `enumerate` counts; of `zip(self.layers, keep)` what comes of `keep`.
    """
    return {
        name
        for over, target in _gone_over(loop.iter, loop.target)
        if base(over) in names
        or _takes_values(over, ctx)
        or (drawn and any(_draws(node, ctx) for node in ctx.inside(over)))
        for name in bound(target)
    }


def _gone_over(
    over: cst.BaseExpression, target: cst.BaseExpression
) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """Each list that a loop goes over, with the part of its target that is bound to the items of that."""
    targets = [element.value for element in target.elements] if isinstance(target, cst.Tuple) else []
    if isinstance(over, cst.Call) and is_call_to(over, "enumerate") and over.args and len(targets) == 2:
        yield from _gone_over(over.args[0].value, targets[1])
    elif isinstance(over, cst.Call) and is_call_to(over, "zip") and len(over.args) == len(targets):
        for argument, each in zip(over.args, targets, strict=True):
            yield from _gone_over(argument.value, each)
    else:
        yield over, target


def _is_taken_out(made: cst.BaseExpression, given: set[str]) -> bool:
    """`inputs["image"]`, `kwargs.get("image")`, `kwargs.pop("image", None)`."""
    owner = made.value if isinstance(made, cst.Subscript) else called_on(made, "get", "pop")
    return isinstance(owner, cst.Name) and owner.value in given


def _takes_values(made: cst.BaseExpression, ctx: Context) -> bool:
    """`top.unique()`, `counts.tolist()`, `(hits > 0).nonzero()`, and `torch.where(hits)` of one argument."""
    calls = (node for node in ctx.inside(made) if isinstance(node, cst.Call))
    methods = ((call, call.func.attr.value) for call in calls if isinstance(call.func, cst.Attribute))
    return any(method in _TAKEN or (method == "where" and len(call.args) == 1) for call, method in methods)


def _depends(test: cst.CSTNode, given: set[str], ctx: Context) -> bool:
    """Whether it is another for other inputs, or for another throw of the dice."""
    return _reads(test, given, ctx) or any(_draws(node, ctx) for node in ctx.inside(test))


def _reads(test: cst.CSTNode, names: set[str], ctx: Context) -> bool:
    return any(isinstance(node, cst.Name) and node.value in names for node in ctx.inside(test))


def _draws(node: cst.CSTNode, ctx: Context) -> bool:
    """`random.random()`, `np.random.rand()`, `torch.rand(1)`, `self.rng.choice(…)`."""
    if not isinstance(node, cst.Call):
        return False
    return (ctx.dotted(node.func) or "").startswith(_RANDOM) or last_name(node.func) in _OF_GENERATORS


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
    over, target = next((each for each in _gone_over(loop.iter, loop.target) if each[0] in around), (None, loop.target))
    is_by_key = called_on(over, "items", "named_children") is not None
    last = target.elements[-1].value if is_by_key and isinstance(target, cst.Tuple) else target
    return set(bound(last))


def _is_filtered(loop: cst.CompFor, given: set[str], ctx: Context) -> bool:
    """Whether a comprehension leaves out some: `for e, mask in zip(self.experts, masks) if mask.any()`."""
    known = given | _items(loop, given, ctx)
    return any(_depends(each.test, known, ctx) for each in loop.ifs)


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
    made = _made_of(method.node, method.given, ctx)
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


def _made_of(method: cst.FunctionDef, given: set[str], ctx: Context) -> set[str]:
    """What is computed of what a method is given, too: `mask = chosen == index`, `for e, size in enumerate(sizes)`."""
    found = set(given)
    for node in ctx.inside(method.body):
        if isinstance(node, cst.Assign) and _depends(node.value, found, ctx):
            found |= set(bound(node.targets[0].target))
        elif isinstance(node, cst.For):
            found |= _items(node, found, ctx)
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
