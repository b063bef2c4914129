"""What decides how a clipping is written: the norm and the parameters, and what is said about it."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.plan import Plan
from codemods.reading.left_out import may_ignore_parameters, may_offload_parameters

STALE = (
    "the model can run between the backward and this clipping: FSDP1 went on with stale weights of its root there,"
    " FSDP2 does not, and the losses differ for it"
)
STALE_HINT = "move that forward behind optimizer.step(), where both train alike"

IGNORED = (
    "where ignored parameters are trained, each rank clips its shards by a norm of its own, as before, but the shards"
    " are other ones"
)
IGNORED_HINT = "nothing, where what is ignored is frozen; else all-reduce its gradients, which makes the norms equal"


def has_plain_norm(call: cst.Call, first: int) -> bool:
    """Whether the norm type is left out or a finite number; `first` is the position of the maximal norm."""
    if any(argument.star for argument in call.args):
        return False
    positional = [argument.value for argument in call.args if argument.keyword is None]
    named = {argument.keyword.value: argument.value for argument in call.args if argument.keyword is not None}
    norm = positional[first + 1] if len(positional) > first + 1 else named.get("norm_type")
    return norm is None or isinstance(norm, (cst.Integer, cst.Float))


def needs_support(model: cst.BaseExpression, ctx: Context, plan: Plan) -> bool:
    """Whether torch's own function fails: for plain gradients beside sharded ones, and for gradients on the CPU."""
    return may_ignore_parameters(ctx, model, plan) or may_offload_parameters(ctx, model, plan)
