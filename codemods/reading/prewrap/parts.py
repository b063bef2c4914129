"""Other names of a model, of its parts and of its parameters, from above a call."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.optimizers import is_optimizer
from codemods.reading.places import place

_PARAMETERS = (".weight", ".bias")


def other_names(ctx: Context, site: cst.Call, model: str) -> Iterator[tuple[str, bool]]:
    """`inner = net`, which is all of the model, and `head = net.head`, which is a part of it."""
    for _, left, right in _assigned_above(ctx, site):
        if right == model or right.startswith(f"{model}."):
            yield left, right == model
        elif left == model:
            yield right, True


def parameters_above(ctx: Context, site: cst.Call, model: str) -> Iterator[cst.BaseExpression]:
    """`weight = net.head.weight`, where something below the wrap, or an optimizer, uses it."""
    here = ctx.span(site)[1]
    for node, left, right in _assigned_above(ctx, site):
        if "." not in left and right.startswith(f"{model}.") and right.endswith(_PARAMETERS):
            if any(_collects(ctx, use) or (ctx.span(use)[0] > here and not _asks(ctx, use)) for use in ctx.uses(node)):
                yield node.value


def _assigned_above(ctx: Context, site: cst.Call) -> Iterator[tuple[cst.Assign, str, str]]:
    """The assignments of one place to another, above a call in its function."""
    scope, here = ctx.scope(site), ctx.span(site)[0]
    for node in ctx.nodes(cst.Assign):
        right = place(node.value)
        if right is not None and ctx.scope(node) is scope and ctx.span(node)[0] < here:
            for left in (place(target.target) for target in node.targets):
                if left is not None:
                    yield node, left, right


def _collects(ctx: Context, use: cst.Name) -> bool:
    """`AdamW([weight])`, `parameters = [weight]`."""
    for node in ctx.ancestors(use):
        if isinstance(node, (cst.List, cst.Dict, cst.Tuple)) or (
            isinstance(node, cst.Call) and is_optimizer(ctx, node)
        ):
            return True
        if isinstance(node, (cst.Call, cst.BaseSmallStatement)):
            return False
    return False


def _asks(ctx: Context, use: cst.Name) -> bool:
    """`weight.dtype`: what does not change."""
    outer = ctx.parent(use)
    return isinstance(outer, cst.Attribute) and outer.attr.value in {"device", "dtype", "ndim", "shape"}
