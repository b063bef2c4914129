"""Which calls shard a model, and which place it has."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.reading.places import place
from codemods.reading.wrapped import is_on_another_way, wrapped_place
from codemods.vocabulary import File

WORDS = ("fully_shard",)


def fully_shard_calls(file: File) -> Iterator[tuple[cst.Call, str]]:
    """`fully_shard(model.encoder)` with `model.encoder`; for the variable of a loop, with what is looped over."""
    for call in file.nodes(cst.Call):
        dotted = file.dotted(call.func) or ""
        if dotted.startswith("torch.") and dotted.endswith(".fully_shard"):
            model = wrapped_place(file, call)
            if model is not None:
                yield call, model


def known_as(file: File, call: cst.Call, where: str) -> str:
    """The name that the program goes on with: `model` after `model = fully_shard(net)`."""
    holder = file.parent(call)
    if isinstance(holder, cst.Assign) and len(holder.targets) == 1:
        return place(holder.targets[0].target) or where
    return where


def sharded_above(file: File, node: cst.Call, model: str) -> bool:
    """Whether the model of this place is sharded above `node`, in the same function and for sure on the same way."""
    return any(
        model in {where, known_as(file, call, where)}
        and file.scope(call) is file.scope(node)
        and file.span(call)[0] < file.span(node)[0]
        and not is_on_another_way(file, call, node)
        for call, where in fully_shard_calls(file)
    )
