"""Which ranks a process group is: all of them, or those that a model is sharded over."""

from __future__ import annotations

import libcst as cst

from codemods.api import SUPPORT, Context, Import, ModelKind, Origin
from codemods.reading.wraps.flat_parameters import constructor_calls
from codemods.reading.wraps.manual import arguments, class_given, is_constructor, is_factory

_ALL = frozenset({"torch.distributed.group.WORLD", "torch.distributed.GroupMember.WORLD"})
_OF_RECIPES = ("llama_recipes.utils.fsdp_utils.hsdp_device_mesh", "llama_cookbook.utils.fsdp_utils.hsdp_device_mesh")
REPLICATED = "ShardingStrategy.NO_SHARD"
_MAKERS = (".init_device_mesh", *_OF_RECIPES)
"""Torch's function, and the one around it that programs take from the llama recipes."""


def is_world(origin: Origin) -> bool:
    """Whether a group is made as the default one."""
    node = origin.node
    if isinstance(node, cst.Call):
        return (origin.file.dotted(node.func) or "").endswith("._get_default_group")
    return isinstance(node, cst.BaseExpression) and origin.file.dotted(node) in _ALL


def is_default(ctx: Context, group: cst.BaseExpression) -> bool:
    """Whether an expression is seen to give the default group, or None, which stands for it."""
    origins = ctx.origins(group)
    return bool(origins) and all(origin.is_none or is_world(origin) for origin in origins)


def is_over_all(ctx: Context, model: cst.BaseExpression) -> bool:
    """Whether each constructor call that a model is seen to come from shards it over all ranks."""
    calls = constructor_calls(model, ctx)
    return bool(calls) and all(_names_no_group(where, call) for where, call in calls)


def group_of(ctx: Context, model: cst.BaseExpression, at: cst.CSTNode) -> tuple[str, list[Import]]:
    """What says the ranks that a model is sharded over, and what it needs imported."""
    if ctx.kinds(model) == {ModelKind.FSDP} and is_over_all(ctx, model):
        dist = ctx.named(Import("torch.distributed", alias="dist"), at)
        return f"{dist.local}.group.WORLD", [dist]
    item = ctx.named(Import(SUPPORT, "group_of"), at)
    return f"{item.local}({ctx.quote(model)})", [item]


def has_group_of_its_own(ctx: Context, model: cst.BaseExpression) -> bool:
    """Whether a model can be sharded over other ranks than all: a constructor call names a group or a part of a mesh.

    The world's first rank is then not the model's, and what it broadcasts can be another model's.
    """
    named = (each for keyword in ("process_group", "device_mesh") for each in ctx.passing(keyword))
    calls = constructor_calls(model, ctx) or [(where, call) for where, call in named if _wraps(where, call)]
    return any(_names_group(where, call) for where, call in calls)


def may_be_hybrid(ctx: Context, model: cst.BaseExpression) -> bool:
    """Whether a constructor call is seen to give a hybrid strategy: the ranks of each node shard one copy."""
    return any(_is_hybrid(*each) for each in constructor_calls(model, ctx))


def _is_hybrid(where: Context, call: cst.Call) -> bool:
    return any("HYBRID" in name for name in strategies(where, call))


def strategies(where: Context, call: cst.Call) -> list[str]:
    """FSDP1's names of the strategies that a constructor call names, empty ones for what is not seen."""
    named = (a for a in arguments(where, call) if a.keyword is not None and a.keyword.value == "sharding_strategy")
    return [_name(origin) for given in named for origin in where.origins(given.value)]


def _wraps(where: Context, call: cst.Call) -> bool:
    return is_constructor(where, call) or is_factory(where, call) or class_given(where, call) is not None


def _names_group(where: Context, call: cst.Call) -> bool:
    named = {a.keyword.value: a.value for a in arguments(where, call) if a.keyword is not None}
    group, mesh = named.get("process_group"), named.get("device_mesh")
    if group is not None and not is_default(where, group):
        return True
    return mesh is not None and not all(o.is_none or _covers_all(o) for o in where.origins(mesh))


def _covers_all(mesh: Origin) -> bool:
    """Whether a mesh is made by a function that takes all ranks."""
    made = mesh.node
    return isinstance(made, cst.Call) and (mesh.file.dotted(made.func) or "").endswith(_MAKERS)


def _names_no_group(where: Context, call: cst.Call) -> bool:
    named = {a.keyword.value: a.value for a in arguments(where, call) if a.keyword is not None}
    if len(named) + 1 < len(call.args) or any(a.star for a in call.args) or "device_mesh" in named:
        return False
    strategies = where.origins(named["sharding_strategy"]) if "sharding_strategy" in named else ()
    seen = [_name(origin) for origin in strategies if not origin.is_none]
    return not any("HYBRID" in name or not name for name in seen) and (
        "process_group" not in named or is_default(where, named["process_group"])
    )


def _name(origin: Origin) -> str:
    return (isinstance(origin.node, (cst.Attribute, cst.Name)) and origin.file.fsdp1(origin.node)) or ""
