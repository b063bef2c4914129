"""Weights in channels_last: FSDP1 copied them into flat parameters, and `fully_shard` takes contiguous ones only."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.code.places import base
from codemods.reading.models.makeup import Makeup

from ..draft import Draft


def undo_channels_last(draft: Draft) -> None:
    """Make the parameters contiguous, where the program is seen to change the memory format of this model."""
    if not _is_channels_last(draft.file, draft.module, draft.built):
        return
    param = draft.fresh("param", "parameter")
    draft.before.append(
        f"for {param} in {draft.model}.parameters():  # fully_shard takes no channels_last\n"
        f"    {param}.data = {param}.data.contiguous()"
    )


def _is_channels_last(ctx: Context, module: cst.BaseExpression, made: Makeup) -> bool:
    if not ctx.mentions("channels_last"):
        return False
    calls = [call for _, call in made.made]
    for where, site in ctx.passing("memory_format"):
        if not isinstance(site.func, cst.Attribute) or site.func.attr.value != "to":
            continue
        moved = site.func.value
        if any(origin.node in calls for origin in where.origins(moved)) or _is_own(where, moved, made):
            return True
        if where.path == ctx.path and where.scope(site) is ctx.scope(module) and _over(where, moved) == base(module):
            return True
    return False


def _is_own(ctx: Context, moved: cst.BaseExpression, made: Makeup) -> bool:
    """`self.to(...)` or `self.stem.to(...)`, when the model or a part of it is made."""
    around = list(ctx.ancestors(moved))
    function = next((node for node in around if isinstance(node, cst.FunctionDef)), None)
    owner = next((node for node in around if isinstance(node, cst.ClassDef)), None)
    if function is None or function.name.value == "forward" or owner not in {node for _, node in made.classes}:
        return False
    first = function.params.params[:1]
    place = base(moved)
    return bool(first) and place is not None and place.split(".")[0] == first[0].name.value


def _over(ctx: Context, moved: cst.BaseExpression) -> str | None:
    """The place of what is moved; a loop variable stands for what is looped over."""
    found = base(moved)
    for node in ctx.ancestors(moved):
        if isinstance(node, cst.For) and isinstance(node.target, cst.Name) and node.target.value == found:
            outer = base(node.iter)
            return outer.split(".")[0] if outer is not None else None
    return found
