"""Reading `model.load_state_dict(state, strict=False)`."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from codemods.api import Context, NotStatic
from codemods.reading.by_class import own_arguments
from codemods.reading.class_layout import model_classes
from codemods.reading.flat_parameters import constructor_calls
from codemods.reading.read_again import is_read_again

PAST_OWN = "load_past_own_method"
"""The support function that loads past a method of the model's own."""
METHOD = "load_state_dict"
_ORDER = ("state_dict", "strict")


@dataclass(frozen=True)
class Loading:
    """What is loaded, and how strictly."""

    state: cst.BaseExpression
    strict: cst.Arg | None
    is_lenient: bool
    """Whether `strict` is anything but True: other keys may be missing or not known."""
    result_is_used: bool
    is_read_again: bool
    """Whether the program may look at the state dict afterwards, or load it into another model."""


def loading(call: cst.Call, ctx: Context) -> Loading:
    """Raises NotStatic for arguments that only `torch.nn.Module.load_state_dict` has."""
    found, given = {}, own_arguments(call, ctx)
    for index, argument in enumerate(given):
        name = argument.keyword.value if argument.keyword is not None else (*_ORDER, "assign")[index]
        if argument.star or name not in _ORDER:
            raise NotStatic("load_state_dict takes arguments that the new function does not have")
        found[name] = argument
    if "state_dict" not in found or given[0] is not found["state_dict"]:
        raise NotStatic("load_state_dict does not take the state dict first")
    strict = found.get("strict")
    lenient = strict is not None and ctx.code(strict.value) != "True"
    state = found["state_dict"].value
    is_used = not isinstance(ctx.parent(call), cst.Expr)
    return Loading(state, strict, lenient, is_used, is_read_again(state, call, ctx))


def has_own_method(model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether the class of what a model wraps is seen to have a `load_state_dict` of its own: the wrapper, which has
    torch's, went past it. FSDP2's model has the method, and need not take what torch's functions give it."""
    if not ctx.defines(METHOD):
        return False
    # Of a model that nobody is seen to pass, any that the program wraps can be meant.
    calls = constructor_calls(model, ctx) or ctx.wrapping.calls(ctx.path)
    classes = (found for where, call in calls for found in model_classes(where, call))
    return any(
        isinstance(node, cst.FunctionDef) and node.name.value == METHOD
        for _, owner in classes
        for node in owner.body.body
    )
