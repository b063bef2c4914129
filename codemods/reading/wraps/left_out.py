"""Which parameters of a model are not sharded as the rest: those that are ignored, offloaded, or on another mesh."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Origin
from codemods.plan import Plan
from codemods.reading.wraps.manual import is_constructor
from codemods.reading.wraps.parts import root_around, wraps_parts

_IGNORED = ("ignored_modules", "ignored_parameters", "ignored_states")


def ignores_parameters(ctx: Context, model: cst.BaseExpression, plan: Plan | None = None) -> bool:
    """Whether the constructor call of a model names what it ignores; a plan knows it of those that become native."""
    calls = _wraps(ctx, model)
    drafts = [plan.wraps[call].draft for _, call in calls if plan is not None and plan.is_native(call)]
    if any(draft is not None and draft.ignores for draft in drafts):
        return True
    open_calls = [(where, call) for where, call in calls if plan is None or not plan.is_native(call)]
    return any(
        not origin.is_none for name, origins in _given(open_calls) if name.startswith("ignored_") for origin in origins
    )


def may_ignore_parameters(ctx: Context, model: cst.BaseExpression, plan: Plan | None = None) -> bool:
    """Whether some parameters of a model may stay plain tensors, which `**kwargs` may say too.

    What a native wrap site takes by `**` is known, and a program that names no such argument ignores nothing.
    """
    made = _wraps(ctx, model)
    calls = [call for where, call in made if is_constructor(where, call)] or [call for _, call in made]
    unseen = [call for call in calls if plan is None or not plan.is_native(call)]
    is_open = any(a.star == "**" for call in unseen for a in call.args)
    return (is_open and ctx.mentions(*_IGNORED)) or ignores_parameters(ctx, model, plan)


def may_offload_parameters(ctx: Context, model: cst.BaseExpression, plan: Plan) -> bool:
    """Whether the parameters of a model may lie on the CPU; of any model, where it is not followed to its wrap."""
    made = [(where, call) for where, call in _wraps(ctx, model) if is_constructor(where, call)]
    made = made or list(ctx.wrapping.calls(ctx.path))
    calls = [call for _, call in made]
    unseen = [call for call in calls if not plan.is_native(call)]
    # FSDP1 takes an object of that class only, whatever hands it on.
    is_named = ctx.mentions("cpu_offload") and ctx.mentions("CPUOffload")
    if is_named and any(a.star == "**" for call in unseen for a in call.args):
        return True
    drafts = [plan.wraps[call].draft for call in calls if plan.is_native(call)]
    if any(draft is not None and "offload_policy" in draft.says for draft in drafts):
        return True
    return any(
        not _stays_on_device(origin) for name, origins in _given(made) if name == "cpu_offload" for origin in origins
    )


def may_mix_meshes(ctx: Context, model: cst.BaseExpression, plan: Plan) -> bool:
    """Whether parts of a model may lie on another mesh than the rest, such as one of replicas alone for NO_SHARD.

    A part whose root is not seen, since other functions or files wrap that, may be one of any model.
    """
    roots = [call for where, call in _wraps(ctx, model) if is_constructor(where, call)]
    for where, part in ctx.wrapping.calls(ctx.path):
        root = root_around(where, part)
        around = [root] if root is not None else roots if wraps_parts(where, part) else []
        if any(each in roots and _has_mesh(each, plan) != _has_mesh(part, plan) for each in around if each is not part):
            return True
    return False


def _has_mesh(call: cst.Call, plan: Plan) -> bool:
    """Whether a wrap site names a mesh, where all ranks in one are what it has without."""
    draft = plan.wraps[call].draft if plan.is_native(call) else None
    return draft is not None and "mesh" in draft.says


def _wraps(ctx: Context, model: cst.BaseExpression) -> list[tuple[Context, cst.Call]]:
    """The calls that a model comes from."""
    made = [(origin.file, origin.node) for origin in ctx.origins(model)]
    return [(where, node) for where, node in made if isinstance(node, cst.Call)]


def _given(calls: list[tuple[Context, cst.Call]]) -> list[tuple[str, list[Origin]]]:
    """The named arguments of some calls, and where each value is made."""
    return [
        (argument.keyword.value, list(where.origins(argument.value)))
        for where, call in calls
        for argument in call.args
        if argument.keyword is not None
    ]


def _stays_on_device(origin: Origin) -> bool:
    """Whether a value of `cpu_offload` is seen to offload nothing: None, `CPUOffload()`, `CPUOffload(False)`."""
    if not isinstance(origin.node, cst.Call) or origin.file.fsdp1(origin.node.func) != "CPUOffload":
        return origin.is_none
    given = origin.node.args
    return not given or (isinstance(given[0].value, cst.Name) and given[0].value.value == "False")
