"""A context of another library that is given the model: it can decide what a state dict in it is."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context

_KNOWN = ("torch.", "contextlib.")


def foreign_context(node: cst.CSTNode, model: str, ctx: Context) -> cst.BaseExpression | None:
    """What a `with` around the node calls, of which nothing is seen, with the model of this text; None for none.

    `with sm_state_dict_type(model, kind):` of SageMaker is torch's `state_dict_type` for a changed FSDP.
    """
    for outer in ctx.ancestors(node):
        if isinstance(outer, (cst.FunctionDef, cst.ClassDef)):
            return None
        for item in outer.items if isinstance(outer, cst.With) else ():
            call = item.item
            if isinstance(call, cst.Call) and _is_given(call, model, ctx) and _is_unknown(call, ctx):
                return call.func
    return None


def _is_given(call: cst.Call, model: str, ctx: Context) -> bool:
    return any(ctx.code(argument.value) == model for argument in call.args)


def _is_unknown(call: cst.Call, ctx: Context) -> bool:
    """Whether it is neither torch's nor Python's, nor a function of the program."""
    dotted = ctx.dotted(call.func)
    if dotted is not None:
        return not dotted.startswith(_KNOWN)
    made = ctx.origins(call.func)
    return not any(isinstance(origin.node, (cst.FunctionDef, cst.ClassDef, cst.Lambda)) for origin in made)
