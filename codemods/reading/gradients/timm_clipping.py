"""What of timm clips gradients: by torch's own function, by the value of each element, or unit by unit (AGC)."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.arguments import by_parameter

FUNCTIONS = ("adaptive_clip_grad", "dispatch_clip_grad")
SCALER = "NativeScaler"
"""A class: its objects are called to go backward, to clip, and to step by a scaler of torch's own."""

_TAKES = ("parameters", "value", "mode", "norm_type")
_STEPS = ("loss", "optimizer", "clip_grad", "clip_mode", "parameters", "create_graph", "need_update")
_FUNCTIONS = frozenset(f"timm.utils.{part}{name}" for part in ("", "agc.", "clip_grad.") for name in FUNCTIONS)
_SCALERS = frozenset({f"timm.utils.{SCALER}", f"timm.utils.cuda.{SCALER}"})
_PARAMETERS = frozenset({"timm.utils.model_parameters", "timm.utils.model.model_parameters"})


def modes(call: cst.Call, ctx: Context) -> frozenset[str]:
    """The ways in which a call can clip: `norm`, `value`, `agc`; none of a call of anything else."""
    name = ctx.dotted(call.func)
    if name in _FUNCTIONS:
        if name.endswith(FUNCTIONS[0]):
            return frozenset({"agc"})
        return _modes(by_parameter(call.args, _TAKES), "mode")
    given = _scaled(call, ctx)
    if given is None or "clip_grad" not in given or ctx.code(given["clip_grad"].value) == "None":
        return frozenset()
    return _modes(given, "clip_mode")


def _modes(given: dict[str, cst.Arg] | None, name: str) -> frozenset[str]:
    if given is not None and name not in given:
        return frozenset({"norm"})
    mode = given[name].value if given is not None else None
    return frozenset({str(mode.evaluated_value)} if isinstance(mode, cst.SimpleString) else {"agc", "norm", "value"})


def reads_model(call: cst.Call, ctx: Context) -> bool:
    """`model_parameters(model)`: its parameters in a list, but for the last two where that is asked for."""
    return ctx.dotted(call.func) in _PARAMETERS and bool(call.args)


def is_scaler(made: cst.CSTNode | None, ctx: Context) -> bool:
    return isinstance(made, cst.Call) and ctx.dotted(made.func) in _SCALERS


def stepped_by(scaler: cst.Call, ctx: Context) -> Iterator[tuple[Context, cst.BaseExpression]]:
    """The optimizers that the calls of a scaler step."""
    for where, call in ctx.passing("parameters"):
        given = by_parameter(call.args, _STEPS) or {}
        if "optimizer" in given and any(origin.node is scaler for origin in where.origins(call.func)):
            yield where, given["optimizer"].value


def _scaled(call: cst.Call, ctx: Context) -> dict[str, cst.Arg] | None:
    """What `scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())` is given."""
    if not any(argument.keyword is not None and argument.keyword.value == "parameters" for argument in call.args):
        return None
    if not any(is_scaler(origin.node, origin.file) for origin in ctx.origins(call.func)):
        return None
    return by_parameter(call.args, _STEPS)
