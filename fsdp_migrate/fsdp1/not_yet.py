"""What a call is about to wrap, above it: `prepare(model)`, then `model = FSDP(model, auto_wrap_policy=policy)`."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.wraps.manual import argument_name, arguments, is_constructor

_POLICY = "auto_wrap_policy"


def is_wrapped_below(ctx: Context, call: cst.Call, name: cst.Name) -> bool:
    """Whether a name stands for what this call wraps by a policy further down in its function.

    With a policy FSDP1 refuses a model of which anything is wrapped, so that nothing this call has made comes back to
    it; without one, it can have wrapped the blocks of the model before.
    """
    if ctx.scope(call) is not ctx.scope(name) or not isinstance(ctx.scope(call), cst.FunctionDef):
        return False
    if ctx.span(name)[0] > ctx.span(call)[0] or not is_constructor(ctx, call):
        return False
    given = arguments(ctx, call)
    model = next((a.value for a in given if argument_name(a) in ("", "module")), None)
    policy = next((a.value for a in given if argument_name(a) == _POLICY), None)
    if policy is None or any(origin.is_none for origin in ctx.origins(policy)):
        return False
    is_it = isinstance(model, cst.Name) and model.value == name.value
    return is_it and ctx.same_meaning(name, call)
