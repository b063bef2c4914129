"""The names in a method that hold what it is given, what a tensor has in it, or what is drawn at random."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.places import base, bound
from codemods.reading.code.shapes import called_on, is_call_to, parameter_names
from codemods.reading.code.words import last_name

_ASKED = (cst.Comparison, cst.BooleanOperation, cst.UnaryOperation, cst.IfExp)
_TAKEN = frozenset({"bincount", "item", "nonzero", "tolist", "unique"})
"""What takes values out of a tensor, to go over them or to ask for one."""
_RANDOM = ("random.", "numpy.random.", "torch.rand", "torch.bernoulli")
_OF_GENERATORS = frozenset({"choice", "choices", "randint", "random", "sample"})


def given_names(method: cst.FunctionDef, ctx: Context) -> set[str]:
    """What a method is given, and each item of it: `for task in tasks`, `for name, x in inputs.items()`.

    What is taken out of it (`inputs.get("image")`), or out of a tensor (`for e in top.unique().tolist()`), or drawn at
    random, and what is asked of either: `has_image = image is not None`.
    """
    star = method.params.star_kwarg
    given = {*parameter_names(method)[1:], *([star.name.value] if star is not None else [])}
    for node in ctx.inside(method.body):
        if isinstance(node, (cst.For, cst.CompFor)):
            given |= items_bound(node, given, ctx)
        elif isinstance(node, cst.Assign) and isinstance(node.targets[0].target, cst.Name):
            asks = node.value.elt if isinstance(node.value, cst.ListComp) else node.value
            is_asked = isinstance(asks, _ASKED) and depends(node.value, given, ctx)
            is_taken = _is_taken_out(node.value, given) or _takes_values(node.value, ctx)
            if is_asked or is_taken or draws(node.value, ctx):
                given.add(node.targets[0].target.value)
    return given


def names_of_values(method: cst.FunctionDef, ctx: Context) -> set[str]:
    """What holds values out of a tensor, or is computed of some, in the order of the text."""
    found = set[str]()
    for node in ctx.inside(method.body):
        if isinstance(node, (cst.For, cst.CompFor)):
            found |= items_bound(node, found, ctx, drawn=False)
        elif isinstance(node, cst.Assign) and (_takes_values(node.value, ctx) or reads_any(node.value, found, ctx)):
            found |= set(bound(node.targets[0].target))
    return found


def items_bound(loop: cst.For | cst.CompFor, names: set[str], ctx: Context, drawn: bool = True) -> set[str]:
    """What a loop over one of these names binds, over values out of a tensor, or over what is `drawn` at random.

    No number that `enumerate` counts; of `zip(self.layers, keep)` what comes of `keep`.
    """
    return {
        name
        for over, target in gone_over(loop.iter, loop.target)
        if base(over) in names
        or _takes_values(over, ctx)
        or (drawn and any(draws(node, ctx) for node in ctx.inside(over)))
        for name in bound(target)
    }


def gone_over(
    over: cst.BaseExpression, target: cst.BaseExpression
) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """Each list that a loop goes over, with the part of its target that is bound to the items of that."""
    targets = [element.value for element in target.elements] if isinstance(target, cst.Tuple) else []
    if isinstance(over, cst.Call) and is_call_to(over, "enumerate") and over.args and len(targets) == 2:
        yield from gone_over(over.args[0].value, targets[1])
    elif isinstance(over, cst.Call) and is_call_to(over, "zip") and len(over.args) == len(targets):
        for argument, each in zip(over.args, targets, strict=True):
            yield from gone_over(argument.value, each)
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


def depends(test: cst.CSTNode, given: set[str], ctx: Context) -> bool:
    """Whether it is another for other inputs, or for another throw of the dice."""
    return reads_any(test, given, ctx) or any(draws(node, ctx) for node in ctx.inside(test))


def reads_any(test: cst.CSTNode, names: set[str], ctx: Context) -> bool:
    return any(isinstance(node, cst.Name) and node.value in names for node in ctx.inside(test))


def draws(node: cst.CSTNode, ctx: Context) -> bool:
    """`random.random()`, `np.random.rand()`, `torch.rand(1)`, `self.rng.choice(…)`."""
    if not isinstance(node, cst.Call):
        return False
    return (ctx.dotted(node.func) or "").startswith(_RANDOM) or last_name(node.func) in _OF_GENERATORS


def made_of(method: cst.FunctionDef, given: set[str], ctx: Context) -> set[str]:
    """What is computed of what a method is given, too: `mask = chosen == index`, `for e, size in enumerate(sizes)`."""
    found = set(given)
    for node in ctx.inside(method.body):
        if isinstance(node, cst.Assign) and depends(node.value, found, ctx):
            found |= set(bound(node.targets[0].target))
        elif isinstance(node, cst.For):
            found |= items_bound(node, found, ctx)
    return found
