"""**What it does.** With `--reshard-after-forward N`, each unit keeps its parameters split over N ranks between
forward and backward, where they are split over all ranks again without.

**Why.** The gather of the backward then stays among N ranks: those of one node, whose links are fast. Each rank holds
an N-th of the model in between. FSDP1 could only keep all of a unit (`SHARD_GRAD_OP`), or split it over all ranks
again (`FULL_SHARD`).

## Example

```python
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def shard(model: nn.Module):
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
```

## Use instead

```python
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def shard(model: nn.Module):
    for layer in model.layers:
        fully_shard(layer, reshard_after_forward=8)
    fully_shard(model)
```

## Fix safety

The same numbers, measured on 2 and 4 gloo ranks: every loss of 50 steps equal to the last bit; on 4 ranks with N = 2,
299 of the 624 KB that a step gathers were gathered among two ranks. N has to divide the ranks that the model is
sharded over, or `fully_shard` raises ValueError when it is called; N equal to them is what holds without. The root is
left as it is: it stays whole between forward and backward. In a dict that is passed on (`**kwargs`), the argument is
replaced for the units alone. One that only run time knows is not replaced, and said.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import libcst as cst

from codemods.api import Context, Edit, Fix, Level, Origin, Upgrade, finding
from codemods.reading.code.shapes import called_on, is_call_to, key_of, keywords
from codemods.reading.edits.call_layout import call_with, quoted_argument
from codemods.reading.own_fsdp2.shardings import IN_ONE_LOOP, Sharding, argument, cannot, rootless, shardings

CODE = "FM601"

_NAME = "reshard_after_forward"
_LITERALS = ("True", "False", "None")


def edit(ctx: Context, ranks: str) -> Iterator[Fix]:
    """One fix for each model."""
    yield from rootless(CODE, ctx, IN_ONE_LOOP, _BY_HAND)
    for sharding in shardings(ctx):
        yield from _of_model(sharding, ranks)


_BY_HAND = "call fully_shard for the units in the loop, and for the model below it"


def _of_model(sharding: Sharding, ranks: str) -> Iterator[Fix]:
    ctx = sharding.file
    if not sharding.units:
        why = "no part of `{}` is sharded apart from it in this function: nothing is gathered again in backward"
        yield cannot(CODE, ctx, sharding.root, why.format(sharding.model), "shard each layer before the model")
        return
    calls = [unit.call for unit in sharding.units]
    unclear = next((call for call in calls if _is_chosen_elsewhere(ctx, call)), None)
    if unclear is not None:
        why = "whether a unit is resharded is decided at run time"
        yield cannot(CODE, ctx, unclear, why, f"give {_NAME}={ranks} where the arguments are chosen")
        return
    edits = [each for call in calls if (each := _edit(ctx, call, ranks)) is not None]
    if edits:
        message = f"the units of `{sharding.known_as}` stay split over {ranks} ranks between forward and backward"
        hint = f"{ranks} has to divide the ranks that the model is sharded over, and should be those of one node"
        yield Fix(edits, [finding(CODE, Level.REWRITTEN, ctx, sharding.root, message, hint)])


def _is_chosen_elsewhere(ctx: Context, call: cst.Call) -> bool:
    given = argument(call, _NAME)
    if given is not None:
        return not _is_literal(ctx, given.value)
    for each in call.args:
        if each.star:
            known = entries(ctx, each.value)
            if known is None or not all(_is_literal(*value) for value in known.get(_NAME, ())):
                return True
    return False


def _is_literal(ctx: Context, value: cst.BaseExpression) -> bool:
    return isinstance(value, cst.Integer) or ctx.code(value) in _LITERALS


def _edit(ctx: Context, call: cst.Call, ranks: str) -> Edit | None:
    given = argument(call, _NAME)
    if given is not None:
        return Edit(*ctx.span(given.value), ranks) if ctx.code(given.value) != ranks else None
    for each in call.args:
        values = (entries(ctx, each.value) or {}).get(_NAME, ()) if each.star else ()
        if any(where.code(value) != ranks for where, value in values):
            # The dict may be the root's as well, which is not resharded.
            merged = f'**{{**{ctx.quote(each.value)}, "{_NAME}": {ranks}}}'
            if "\n" in ctx.code(call):
                return Edit(ctx.span(each)[0], ctx.span(each.value)[1], merged)
            arguments = [merged if other is each else quoted_argument(ctx, other) for other in call.args]
            return Edit(*ctx.span(call), f"{ctx.quote(call.func)}({', '.join(arguments)})")
        if values:
            return None
    return call_with(ctx, call, ctx.quote(call.func), f"{_NAME}={ranks}")


# What a call is passed by `**kwargs`, where the dict is in sight.

Entries = Mapping[str, tuple[tuple[Context, cst.BaseExpression], ...]]
"""Each key, with all values that it can have."""

_ADDS = ("update", "setdefault", "__setitem__")


def entries(ctx: Context, value: cst.BaseExpression) -> Entries | None:
    """The keys of a dict, wherever it is made, and what is put into it behind; None where only run time knows."""
    found: dict[str, list[tuple[Context, cst.BaseExpression]]] = {}
    origins = ctx.origins(value)
    for each in (*map(_of_display, origins), *_added(ctx, origins)):
        if each is None:
            return None
        for key, values in each.items():
            found.setdefault(key, []).extend(values)
    return {key: tuple(values) for key, values in found.items()} if origins else None


def _of_display(origin: Origin) -> Entries | None:
    """Of `{...}` and of `dict(...)`."""
    node, found = origin.node, dict[str, tuple[tuple[Context, cst.BaseExpression], ...]]()
    if isinstance(node, cst.Dict):
        for element in node.elements:
            if isinstance(element, cst.StarredDictElement):
                inner = entries(origin.file, element.value)
                if inner is None:
                    return None
                found.update(inner)
            elif isinstance(element, cst.DictElement) and isinstance(element.key, cst.SimpleString):
                found[str(element.key.evaluated_value)] = ((origin.file, element.value),)
            else:
                return None
        return found
    if is_call_to(node, "dict") and all(each.keyword is not None for each in node.args):
        return {name: ((origin.file, value),) for name, value in keywords(node.args).items()}
    return None


def _added(ctx: Context, origins: Sequence[Origin]) -> Iterator[Entries | None]:
    """What is stored under a key of one of these dicts; None for any other way to change it."""
    made = {id(origin.node) for origin in origins}
    for file in {each.path: each for each in (ctx, *(origin.file for origin in origins))}.values():
        for assign in file.nodes(cst.Assign):
            for target in (each.target for each in assign.targets):
                if isinstance(target, cst.Subscript) and _is_one_of(file, target.value, made):
                    key = key_of(target)
                    yield {key: ((file, assign.value),)} if key is not None else None
        for call in file.nodes(cst.Call):
            changed = called_on(call, *_ADDS)
            if changed is not None and _is_one_of(file, changed, made):
                yield None


def _is_one_of(file: Context, node: cst.BaseExpression, made: set[int]) -> bool:
    return any(id(origin.node) in made for origin in file.origins(node))


UPGRADE = Upgrade(CODE, "reshard-to-fewer-ranks", __doc__, words=("fully_shard",), edit=edit)
