"""`average.load_state_dict(model.state_dict())` of two models that are sharded alike."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.enclosing import call_given
from codemods.reading.flat_parameters import constructor_calls
from codemods.reading.manual import argument_name, arguments
from codemods.reading.model_loading import has_own_method
from codemods.reading.shapes import called_on

_LOAD, _READ = "load_state_dict", "state_dict"
_WHERE = frozenset(
    {"cpu_offload", "device_mesh", "ignored_modules", "ignored_parameters", "ignored_states", "process_group"}
)
"""Arguments of FSDP1 that decide which parameters are sharded, over which ranks, and where the shards lie."""


def is_between_alike(call: cst.Call, ctx: Context) -> bool:
    """Whether a state dict goes from a sharded model straight into another over the same ranks.

    FSDP2's shards are copied as they are, whatever the units (torch 2.13, 2 ranks).
    """
    load = call if called_on(call, _LOAD) is not None else call_given(call, ctx)
    read = load.args[0].value if load is not None and len(load.args) == 1 else None
    into, out_of = called_on(load, _LOAD), called_on(read, _READ)
    if into is None or out_of is None or not isinstance(read, cst.Call) or read.args:
        return False
    if ctx.wrapping.compiles(ctx.path) or has_own_method(into, ctx):
        return False
    return all(_is_over_all_ranks(each, ctx) for each in (into, out_of))


def _is_over_all_ranks(model: cst.BaseExpression, ctx: Context) -> bool:
    made = constructor_calls(model, ctx)
    is_seen = bool(made) and len(made) == len(ctx.origins(model)) and ctx.kinds(model) == {ModelKind.FSDP}
    return is_seen and all(_is_plain(*each) for each in made)


def _is_plain(ctx: Context, call: cst.Call) -> bool:
    for argument in arguments(ctx, call):
        name = argument_name(argument)
        if argument.star or name in _WHERE:
            return False
        strategies = {"FULL_SHARD", "SHARD_GRAD_OP"}
        if name == "sharding_strategy" and ctx.code(argument.value).rpartition(".")[2] not in strategies:
            return False
    return sum(argument.keyword is None for argument in arguments(ctx, call)) <= 1
