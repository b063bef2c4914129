"""What decides how a clipping is written: the norm type and the parameters, and what is said about it."""

from __future__ import annotations

from collections.abc import Set

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.plan import Plan
from codemods.reading.code.enclosing import ifs_around
from codemods.reading.models.frozen import ignores_only_frozen
from codemods.reading.processes.cpu_backend import reaches_cpu
from codemods.reading.wraps.left_out import may_ignore_parameters, may_mix_meshes, may_offload_parameters

_TORCHS = frozenset({"torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad.clip_grad_norm_"})

_OTHER_WRAPPERS = ("torch_xla", "torchacc", "fairscale")
"""Packages with a sharding wrapper that has a `clip_grad_norm_` of its own."""

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


def clipper(model: cst.BaseExpression, is_plain: bool, ctx: Context, plan: Plan, is_mixed: bool = False) -> str:
    """The support function that clips as FSDP1 did where torch's own fails; nothing where that does.

    It fails for plain gradients beside sharded ones, for offloaded ones, for those on two meshes, and for an infinity
    norm of an empty shard.
    `is_plain` says what `has_plain_norm` does of the call, which may stand in another file than the model; `is_mixed`
    that parameters of no wrapped model are clipped with it.
    """
    if may_mix_meshes(ctx, model, plan):
        return "clip_grad_norm_on_meshes_"
    is_offloaded = _is_clipped_by_device(ctx, model, plan)
    if is_mixed or (may_ignore_parameters(ctx, model, plan) and not ignores_only_frozen(ctx, model)):
        return "clip_mixed_grad_norm_" if is_plain and not is_offloaded else "clip_any_grad_norm_"
    if not is_plain:
        return "clip_grad_norm_"
    return "clip_offloaded_grad_norm_" if is_offloaded else ""


def is_asked_for(node: cst.CSTNode, model: str, ctx: Context) -> bool:
    """Whether a model comes here only if it has a method of its own: `if hasattr(model, "clip_grad_norm_"):`."""
    return any(asked_for_method(each.test, ctx) == model for each in ifs_around(ctx, node))


def may_be_anothers(held: Set[ModelKind], ctx: Context) -> bool:
    """Whether XLA's or fairscale's wrapper can come too, which clips by a method of the same name."""
    return bool(held & {ModelKind.OTHER, ModelKind.UNKNOWN}) and ctx.mentions(*_OTHER_WRAPPERS)


def is_torchs_otherwise(node: cst.CSTNode, model: str, ctx: Context) -> bool:
    """Whether it stands under a test for the method, and torch clips what has none."""
    tests = (each.test for each in ifs_around(ctx, node))
    return any(
        isinstance(test, cst.Call) and asked_for_method(test, ctx) == model and is_clipped_otherwise(test, ctx)
        for test in tests
    )


def is_clipped_otherwise(test: cst.Call, ctx: Context) -> bool:
    """Whether what has no such method is clipped by torch, which is right for an FSDP2 model."""
    branch, model = ctx.parent(test), asked_for_method(test, ctx)
    other = branch.orelse if isinstance(branch, (cst.If, cst.IfExp)) and branch.test is test else None
    if other is None or isinstance(other, cst.If):
        return False
    calls = (node for node in (other, *ctx.inside(other)) if isinstance(node, cst.Call) and node.args)
    clips = (call for call in calls if ctx.dotted(call.func) in _TORCHS)
    return any(ctx.code(call.args[0].value) == f"{model}.parameters()" for call in clips)


def asked_for_method(test: cst.BaseExpression, ctx: Context) -> str:
    """The `model` of `hasattr(model, "clip_grad_norm_")`."""
    if not isinstance(test, cst.Call) or ctx.code(test.func) != "hasattr" or len(test.args) != 2:
        return ""
    name = test.args[1].value
    is_method = isinstance(name, cst.SimpleString) and name.evaluated_value == "clip_grad_norm_"
    return ctx.code(test.args[0].value) if is_method else ""


def _is_clipped_by_device(ctx: Context, model: cst.BaseExpression, plan: Plan) -> bool:
    """Whether gradients may be offloaded whose process group is not seen to take them."""
    if not may_offload_parameters(ctx, model, plan):
        return False
    return not (reaches_cpu(ctx) and all(plan.is_native(call) for _, call in ctx.wrapping.calls(ctx.path)))


def any_clipper(model: cst.BaseExpression, ctx: Context, plan: Plan) -> str:
    """The support function for a norm type that is given out of sight."""
    if may_mix_meshes(ctx, model, plan):
        return "clip_grad_norm_on_meshes_"
    return "clip_any_grad_norm_" if may_ignore_parameters(ctx, model, plan) else "clip_grad_norm_"


def has_plain_norm(call: cst.Call, first: int, ctx: Context) -> bool:
    """Whether the norm type is left out or a finite number; `first` is the position of the maximal norm."""
    if any(argument.star for argument in call.args):
        return False
    positional = [argument.value for argument in call.args if argument.keyword is None]
    named = {argument.keyword.value: argument.value for argument in call.args if argument.keyword is not None}
    norm = positional[first + 1] if len(positional) > first + 1 else named.get("norm_type")
    if norm is None or isinstance(norm, (cst.Integer, cst.Float)):
        return True
    origins = ctx.origins(norm)
    return bool(origins) and all(isinstance(origin.node, (cst.Integer, cst.Float)) for origin in origins)
