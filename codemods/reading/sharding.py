"""Which calls shard a model, and which place it has."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.places import place
from codemods.reading.wrapped import is_on_another_way, wrapped_place

WORDS = ("fully_shard",)


def is_fully_shard(ctx: Context, callee: cst.BaseExpression) -> bool:
    """Whether an expression is torch's `fully_shard`, from whichever of its modules."""
    dotted = ctx.dotted(callee) or ""
    return dotted.startswith("torch.") and dotted.endswith(".fully_shard")


def fully_shard_calls(ctx: Context) -> Iterator[tuple[cst.Call, str]]:
    """`fully_shard(model.encoder)` with `model.encoder`; for the variable of a loop, with what is looped over."""
    for call in ctx.nodes(cst.Call):
        if is_fully_shard(ctx, call.func):
            model = wrapped_place(ctx, call)
            if model is not None:
                yield call, model


def known_as(ctx: Context, call: cst.Call, where: str) -> str:
    """The name that the program goes on with: `model` after `model = fully_shard(net)`."""
    holder = ctx.parent(call)
    if isinstance(holder, cst.Assign) and len(holder.targets) == 1:
        return place(holder.targets[0].target) or where
    return where


def sharded_above(ctx: Context, node: cst.Call, model: str) -> bool:
    """Whether the model of this place is sharded above `node`, in the same function and for sure on the same way."""
    return any(
        model in {where, known_as(ctx, call, where)} and comes_before(ctx, call, node)
        for call, where in fully_shard_calls(ctx)
    )


def comes_before(ctx: Context, call: cst.Call, node: cst.Call) -> bool:
    """Whether a call is made before another of its function, for sure on the same way."""
    if ctx.scope(call) is not ctx.scope(node) or ctx.span(call)[0] >= ctx.span(node)[0]:
        return False
    return not is_on_another_way(ctx, call, node) and not ctx.excludes(call, node)
