"""What a program puts into a model by a setter, and takes out again by the getter of that name."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, ModelKind


def is_put_in_wrapped(got: cst.BaseExpression, ctx: Context) -> bool:
    """Whether some `x.set_embeddings(FSDP(…))` of the program is what `x.get_embeddings()` gives."""
    if not isinstance(got, cst.Call) or got.args or not isinstance(got.func, cst.Attribute):
        return False
    name = got.func.attr.value
    setter = f"set_{name.removeprefix('get_')}"
    return name.startswith("get_") and any(
        isinstance(call.func, cst.Attribute)
        and call.func.attr.value == setter
        and bool(call.args)
        and ModelKind.FSDP in where.kinds(call.args[0].value)
        for where in ctx.files(setter)
        for call in where.nodes(cst.Call)
    )
