"""The statement that takes what a forward without a backward left whole, out of a model."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from codemods.api import SUPPORT, Context, Emission, Import, ModelKind
from codemods.plan import PlannedContext, WrapPlan

from ..code.scripts import may_come_from_others
from ..models.plain_objects import is_plain_self


def reshards(
    ctx: PlannedContext, models: Sequence[cst.BaseExpression], at: cst.CSTNode
) -> tuple[list[str], list[Import]]:
    """The lines that reshard `models` in front of `at`, and what they need imported.

    `model.reshard()`, which takes the root alone, where no other unit can be whole; else a function that takes all.
    """
    lines: list[str] = []
    imports: list[Import] = []
    for model in {ctx.code(model): model for model in models}.values():
        if _is_only_its_root(model, ctx):
            lines.append(f"{ctx.quote(model)}.reshard()")
            continue
        item = ctx.named(Import(SUPPORT, "reshard_all"), at)
        lines.append(f"{item.local}({ctx.quote(model)})")
        imports.append(item)
    return lines, list(dict.fromkeys(imports))


def _is_only_its_root(model: cst.BaseExpression, ctx: PlannedContext) -> bool:
    """Whether a model is an FSDP2 model for sure, and its root is all that a forward can leave whole.

    Other units stay whole with `reshard_after_forward=False`, and where they are roots that the program calls.
    """
    if ctx.kinds(model) != {ModelKind.FSDP} or may_come_from_others(model, ctx) or ctx.holds_parts(model):
        return False
    return all(_frees_units(wrap) for wrap in ctx.plan.wraps.values())


def _frees_units(wrap: WrapPlan) -> bool:
    """Whether the units of a wrap site are freed behind their forward, and none of them can be called as a root."""
    draft = wrap.draft
    if wrap.emission is not Emission.NATIVE or draft is None:
        return False
    given = {*draft.common_kwargs, *draft.unit_kwargs, *draft.root_kwargs}
    if {"reshard_after_forward", "**"} & given:
        return False
    return not _may_become_part(draft.call, draft.file)


def _may_become_part(call: cst.Call, ctx: Context) -> bool:
    """Whether a wrapped model can be put into another; not one that is returned, or kept by a name or a trainer."""
    store = next((node for node in ctx.ancestors(call) if not isinstance(node, (cst.Element, cst.Tuple))), None)
    if isinstance(store, cst.Return):
        return False
    if not isinstance(store, cst.Assign):
        return True
    targets = [target.target for target in store.targets]
    each = [item for target in targets for item in _items(target)]
    return not all(isinstance(item, cst.Name) or _is_of_plain_self(item, ctx) for item in each)


def _items(target: cst.BaseExpression) -> list[cst.BaseExpression]:
    return [element.value for element in target.elements] if isinstance(target, cst.Tuple) else [target]


def _is_of_plain_self(target: cst.BaseExpression, ctx: Context) -> bool:
    return isinstance(target, cst.Attribute) and is_plain_self(ctx, target.value)
