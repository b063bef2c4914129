"""What a backward leaves whole: the root of a model that ran without gradients, behind another one's loss."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.code.words import is_name
from codemods.reading.forwards.calls import given_names, is_without_backward, may_be_without_grad, own_names, runs

_DEPTH = 3
"""Callers that are followed up from where a model is a parameter."""


def calls_behind(
    calls: list[cst.Call], model: str, ctx: Context, is_one: Callable[..., bool], *given: object
) -> list[cst.Call]:
    """The calls behind the last that frees what the model has left whole.

    Not the backward of another one, `loss.backward()` behind `with torch.no_grad(): target = model(x)`.
    """
    for index in range(len(calls) - 1, -1, -1):
        if is_one(calls[index], *given) and not _ran_without_grad(calls[: index + 1], model, ctx):
            return calls[index + 1 :]
    return calls


def _ran_without_grad(calls: list[cst.Call], model: str, ctx: Context) -> bool:
    """Whether the last of some calls that can run the model runs it without gradients."""
    owner = model.rpartition(".")[0]
    for call in reversed(calls):
        state = leaves_whole(call, model, ctx)
        if state is not None:
            return state
        is_given = any(ctx.code(argument.value) == model for argument in call.args)
        is_method = isinstance(call.func, cst.Attribute) and ctx.code(call.func.value) == owner
        is_another = ModelKind.FSDP in ctx.kinds(call.func) or _is_of_model(call, model, ctx)
        if is_given or (is_method and not is_another) or runs(call, model, ctx):
            return False
    return False


def leaves_whole(call: cst.Call, model: str, ctx: Context, depth: int = _DEPTH) -> bool | None:
    """Whether a call's last run of the model is one without gradients; None where no run is seen."""
    if _is_of_model(call, model, ctx):
        is_run = runs(call, model, ctx) and not _is_of_plain(call, model, ctx)
        return is_without_backward(call, ctx) if is_run else None
    for where, function in ctx.runs(call) if depth else ():
        name = _name_given(model, call, function, ctx)
        if not name and where is ctx and _reads(function, model, ctx):
            name = model
        calls = sorted(where.calls(function), key=lambda each: -where.span(each)[1]) if name else ()
        for inner in calls:
            state = leaves_whole(inner, name, where, depth - 1)
            if state is not None:
                return state or may_be_without_grad(call, ctx)
    return None


def _is_of_model(call: cst.Call, model: str, ctx: Context) -> bool:
    """`model(x)`, and what is called on it."""
    function = ctx.code(call.func)
    return function == model or function.startswith(f"{model}.")


def _is_of_plain(call: cst.Call, model: str, ctx: Context) -> bool:
    """Whether what a call is of is seen to be no FSDP model: another program's may have the same name."""
    owner = call.func
    while isinstance(owner, cst.Attribute) and ctx.code(owner) != model:
        owner = owner.value
    return ctx.kinds(owner).isdisjoint({ModelKind.FSDP, ModelKind.UNKNOWN})


def _name_given(model: str, call: cst.Call, function: cst.FunctionDef, ctx: Context) -> str:
    """What the function calls the model that it is given, or that its object has: `self.model`; "" where neither is."""
    owner, _, rest = model.rpartition(".")
    if owner and isinstance(call.func, cst.Attribute) and ctx.code(call.func.value) == owner:
        return f"self.{rest}"
    params = given_names(function)
    for index, argument in enumerate(call.args):
        if ctx.code(argument.value) == model:
            if argument.keyword is not None:
                return argument.keyword.value
            return params[index] if index < len(params) else ""
    return ""


def _reads(function: cst.FunctionDef, model: str, ctx: Context) -> bool:
    """Whether a function reads a variable of the function around, or of the file."""
    if not model.isidentifier() or model in own_names(function, ctx):
        return False
    return any(is_name(node, model) for node in ctx.inside(function.body))
