"""Policies that a library asks as well, in the way of FSDP1: `policy(module=…, recurse=…, nonwrapped_numel=…)`.

Activation checkpointing is given one, and so are what accelerate and Lightning wrap by; accelerate also reads what is
set on its plugin: `accelerator.state.fsdp_plugin.auto_wrap_policy = policy`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from codemods.api import Context, Origin
from codemods.reading.models.library_models import NO_WRAPPERS

_NAMES = ("auto_wrap_policy", "activation_checkpointing_policy")


def is_asked_by_others(origins: Sequence[Origin], ctx: Context) -> bool:
    """Whether one of these policies goes to a library too, which needs it as it is."""
    made = {origin.node for origin in origins if origin.node is not None and not origin.is_none}
    return any(
        made & {origin.node for origin in where.origins(value)}
        for name in _NAMES
        for where, value in (*_given(name, ctx), *_set(name, ctx))
    )


def _given(name: str, ctx: Context) -> Iterator[tuple[Context, cst.BaseExpression]]:
    for where, call in ctx.passing(name):
        if _is_of_library(call, where):
            yield from ((where, a.value) for a in call.args if a.keyword is not None and a.keyword.value == name)


def _is_of_library(call: cst.Call, ctx: Context) -> bool:
    name = ctx.dotted(call.func) or ""
    if name.endswith(".apply_activation_checkpointing"):
        return True
    if name.partition(".")[0] in {"", *NO_WRAPPERS} or ctx.runs(call):
        return False
    return not any(isinstance(origin.node, cst.ClassDef) for origin in ctx.origins(call.func))


def _set(name: str, ctx: Context) -> Iterator[tuple[Context, cst.BaseExpression]]:
    """What an attribute is set to that the program itself does not read."""
    found = [(where, node, where.parent(node)) for where, node in ctx.attributes(name)]
    read = {o.node for where, node, by in found if not isinstance(by, cst.AssignTarget) for o in where.origins(node)}
    for where, _, target in found:
        statement = where.parent(target) if isinstance(target, cst.AssignTarget) else None
        if isinstance(statement, cst.Assign) and not read & {o.node for o in where.origins(statement.value)}:
            yield where, statement.value
