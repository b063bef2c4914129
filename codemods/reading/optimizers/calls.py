"""FSDP1's static methods that deal in an optimizer's state: which one a call means, and what it is given."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from codemods.api import Context, ModelKind, NotStatic
from codemods.reading.code.arguments import by_parameter
from codemods.reading.code.words import last_name, words
from codemods.reading.optimizers.makers import is_optimizer
from codemods.tables.state_dicts import OPTIMIZER_CALLS

PREFIX = "FullyShardedDataParallel."

_MODEL = frozenset({"model", "module", "net"})

Given = Mapping[str, cst.Arg]
"""Arguments by FSDP1's names for the parameters."""


def function_of(call: cst.Call, ctx: Context) -> str | None:
    """The static method that is called: on the class, or on a model, which has it too."""
    name = ctx.fsdp1(call.func)
    if name is not None:
        name = name.removeprefix(PREFIX) if name.startswith(PREFIX) else None
    elif isinstance(call.func, cst.Attribute) and call.func.attr.value in OPTIMIZER_CALLS:
        held = ctx.kinds(call.func.value)
        name = call.func.attr.value if ModelKind.FSDP in held else None
    return name if name in OPTIMIZER_CALLS else None


def arguments_of(call: cst.Call, name: str, ctx: Context) -> Given:
    """Raises NotStatic for an argument that FSDP2 has nothing for.

    Before torch 2.1 those of `optim_state_dict_to_load` were `(optim_state_dict, model, optim)`: that order is seen.
    """
    row = OPTIMIZER_CALLS[name]
    found = by_parameter(call.args, row.parameters)
    if found is None:
        raise NotStatic("its arguments are not followed")
    for key, argument in found.items():
        if key in row.dropped and not _is_needless(key, argument.value, found, ctx):
            raise NotStatic(f"its {key} is `{ctx.code(argument.value)}`")
    return _in_new_order(found, ctx) if name == "optim_state_dict_to_load" else found


def _is_needless(key: str, value: cst.BaseExpression, given: Given, ctx: Context) -> bool:
    """Whether an argument says no more than what holds without it."""
    text = ctx.code(value)
    if text in {"None", "False"}:
        return True
    if key == "group":
        return True  # FSDP1 asks for the group that the model is sharded over, and FSDP2's model knows its own
    optimizer = ctx.code(given["optim"].value) if "optim" in given else ""
    if key == "optim_input":
        return bool(optimizer) or text == f"{ctx.code(given['model'].value)}.parameters()"
    made = {origin.file.code(origin.node) if origin.node is not None else "" for origin in ctx.origins(value)}
    return key == "optim_state_dict" and f"{optimizer}.state_dict()" in {text, *made} and len(made) == 1


def _in_new_order(given: Given, ctx: Context) -> Given:
    first, second, third = (given.get(key) for key in ("model", "optim", "optim_state_dict"))
    if first is None or second is None or first.keyword is not None or second.keyword is not None:
        return given
    if _is_model(first, ctx) or _is_optimizer(second, ctx):
        return given
    if third is None or third.keyword is not None or not (_is_model(second, ctx) or _is_optimizer(third, ctx)):
        raise NotStatic("it cannot be seen which of its arguments is the model: torch 2.1 changed their order")
    return {**given, "model": second, "optim": third, "optim_state_dict": first}


def _is_optimizer(argument: cst.Arg, ctx: Context) -> bool:
    """Whether each value that is seen is made as one: that tells the other, a model whose units alone are wrapped."""
    made = ctx.origins(argument.value)
    return bool(made) and all(isinstance(o.node, cst.Call) and is_optimizer(o.file, o.node) for o in made)


def _is_model(argument: cst.Arg, ctx: Context) -> bool:
    held = ctx.kinds(argument.value)
    if ModelKind.FSDP in held or ModelKind.UNKNOWN not in held:
        return ModelKind.FSDP in held
    said = words(last_name(argument.value))
    return bool(said & _MODEL) and "state" not in said
