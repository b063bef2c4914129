"""`FSDP.load_state_dict(model, state)`: a method of every module that is called by the class, with the model first."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from codemods.api import Context
from codemods.tables.names import WRAPPER


def receiver(call: cst.Call, ctx: Context) -> cst.BaseExpression | None:
    """What a method is called on."""
    if not isinstance(call.func, cst.Attribute):
        return None
    return call.args[0].value if _is_by_class(call, ctx) else call.func.value


def own_arguments(call: cst.Call, ctx: Context) -> Sequence[cst.Arg]:
    """What it is given."""
    return call.args[1:] if _is_by_class(call, ctx) else call.args


def _is_by_class(call: cst.Call, ctx: Context) -> bool:
    first = call.args[0] if call.args else None
    if first is None or first.keyword is not None or first.star or not isinstance(call.func, cst.Attribute):
        return False
    return ctx.fsdp1(call.func) == f"{WRAPPER}.{call.func.attr.value}"
