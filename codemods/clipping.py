"""What decides how a clipping is written: the norm, the parameters, and what runs between the backward and it."""

from __future__ import annotations

import re

import libcst as cst

from codemods.vocabulary import File

STALE = (
    "the model can run between the backward and this clipping: FSDP1 went on with stale weights of its root there,"
    " FSDP2 does not, and the losses differ for it"
)
STALE_CURE = "move that forward behind optimizer.step(), where both train alike"

# Methods of a model that do not run it.
_QUIET = frozenset({"parameters", "named_parameters", "modules", "named_modules", "named_buffers", "buffers"})
_QUIET |= {"children", "named_children", "train", "eval", "requires_grad_", "zero_grad", "no_sync", "clip_grad_norm_"}
_QUIET |= {"state_dict"}
_RUNS = re.compile(r"eval|valid|test|generate|sample|infer|predict|forward", re.IGNORECASE)
_BACKWARD = re.compile(r"\bbackward$")


def has_plain_norm(call: cst.Call, first: int) -> bool:
    """Whether the norm type is left out or a finite number; `first` is the position of the maximal norm."""
    if any(argument.star for argument in call.args):
        return False
    positional = [argument.value for argument in call.args if argument.keyword is None]
    named = {argument.keyword.value: argument.value for argument in call.args if argument.keyword is not None}
    norm = positional[first + 1] if len(positional) > first + 1 else named.get("norm_type")
    return norm is None or isinstance(norm, (cst.Integer, cst.Float))


def needs_support(model: cst.BaseExpression, file: File) -> bool:
    """Whether torch's own function fails: for plain gradients beside sharded ones, and for gradients on the CPU."""
    return file.may_ignore_parameters(model) or file.may_offload_parameters(model)


def follows_forward(call: cst.Call, model: cst.BaseExpression, file: File) -> bool:
    """Whether the model is seen to run between the last backward and the clipping, both in one function."""
    text = file.code(model)
    start = file.span(call)[0]
    between = [other for other in file.calls(file.scope(call)) if file.span(other)[1] < start]
    backwards = [file.span(other)[0] for other in between if _BACKWARD.search(file.code(other.func))]
    if not backwards:
        return False
    return any(_runs(other, text, file) for other in between if file.span(other)[0] > max(backwards))


def _runs(call: cst.Call, model: str, file: File) -> bool:
    """`model(x)`, `model.generate(x)`, `evaluate(model)`, `self.evaluate()` for `self.model`."""
    function = file.code(call.func)
    if function == model:
        return True
    if isinstance(call.func, cst.Attribute) and file.code(call.func.value) == model:
        return call.func.attr.value not in _QUIET
    is_method = isinstance(call.func, cst.Attribute) and model.startswith(f"{file.code(call.func.value)}.")
    given = any(file.code(argument.value) == model for argument in call.args)
    return (given or is_method) and bool(_RUNS.search(function.rsplit(".", 1)[-1]))
