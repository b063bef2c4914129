"""How torch's `get_optimizer_state_dict` reads what a call of FSDP1 read of an optimizer."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from codemods.api import Context, NotStatic
from codemods.plan import PlannedContext
from codemods.reading.optimizers.calls import Given, arguments_of, function_of
from codemods.reading.processes.one_rank import is_read_on_first_rank
from codemods.reading.state_dicts.choice import choice_around, either
from codemods.reading.state_dicts.dcp_alone import is_for_dcp_alone
from codemods.reading.state_dicts.dcp_format import is_saved_by_dcp
from codemods.reading.state_dicts.saves import may_alias, save_of
from codemods.reading.state_dicts.setting import is_kept_at_run_time, setting_of, usual_or_default
from codemods.reading.state_dicts.settings import settings
from codemods.reading.wraps.process_groups import has_group_of_its_own, is_default
from codemods.tables.state_dicts import CONFIG_FIELDS, FULL

READERS = frozenset({"full_optim_state_dict", "optim_state_dict", "sharded_optim_state_dict"})


def options_in_context(call: cst.Call, ctx: PlannedContext) -> str | None:
    """The options of a call in a `state_dict_type` context, where they can be put behind its arguments as they are."""
    name = function_of(call, ctx)
    if name not in READERS or len(call.args) != 2 or ctx.wrapping.compiles(ctx.path):
        return None
    try:
        return options_of(call, name, arguments_of(call, name, ctx), ctx)
    except NotStatic:
        return None


def options_of(call: cst.Call, name: str, given: Given, ctx: PlannedContext) -> str | None:
    """The arguments of `StateDictOptions`; None where torch's own function does not give the same.

    It gives a full state on the CPU to the first of all ranks only.
    """
    if not {"model", "optim"} <= given.keys():
        raise NotStatic("the model or the optimizer is not among its arguments")
    if is_decided_at_run_time(call, name, ctx):
        return "" if is_for_dcp_alone(call, ctx) else None
    chosen = choice_around(call, ctx) if name == "optim_state_dict" else None
    if chosen is None:
        return _options(call, config_of(call, name, given, ctx), given, ctx)
    full, parts = (_options(call, each.optim_config, given, ctx) for each in (chosen.full, chosen.parts))
    return None if full is None or parts is None else either(chosen.test, full, parts)


def _options(call: cst.Call, config: Mapping[str, str], given: Given, ctx: PlannedContext) -> str | None:
    offload, rank0_only = config["offload_to_cpu"], config.get("rank0_only")
    if rank0_only is None or is_saved_by_dcp(call, ctx) or is_for_dcp_alone(call, ctx):
        return "" if rank0_only is not None or offload == "False" else f"cpu_offload={offload}"
    if rank0_only == offload == "False":
        return None if may_alias(call, ctx) else FULL
    if has_own_group(given, ctx) and not is_read_on_first_rank(call, ctx, has_group=True):
        return None
    if rank0_only == "True" and offload == "False" and save_of(call, ctx) is None:
        return None
    if rank0_only != "True" and not is_read_on_first_rank(call, ctx):
        return None
    return f"{FULL}, cpu_offload={'True' if offload == 'False' else offload}"


def is_decided_at_run_time(call: cst.Call, name: str, ctx: PlannedContext) -> bool:
    """Whether the support module keeps the kind of state dict that a call reads."""
    return name == "optim_state_dict" and is_kept_at_run_time(call, ctx)


def has_own_group(given: Given, ctx: Context) -> bool:
    """Whether the model can be sharded over other ranks than all."""
    if "group" in given and not is_default(ctx, given["group"].value):
        return True
    model = given.get("model")
    return model is not None and has_group_of_its_own(ctx, model.value)


def config_of(call: cst.Call, name: str, given: Given, ctx: PlannedContext) -> Mapping[str, str]:
    """The fields of the config that holds for a call, as texts."""
    if name == "full_optim_state_dict":
        rank0_only = ctx.code(given["rank0_only"].value) if "rank0_only" in given else "True"
        return {"offload_to_cpu": "True", "rank0_only": rank0_only}
    if name == "sharded_optim_state_dict":
        return CONFIG_FIELDS["ShardedOptimStateDictConfig"]
    context = setting_of(call, ctx)
    if context is None:
        return usual_or_default(given["model"].value, ctx).optim_config
    chosen = settings(context, ctx)
    if ctx.code(chosen.model) != ctx.code(given["model"].value):
        raise NotStatic(f"the context around it is for `{ctx.code(chosen.model)}`")
    return chosen.optim_config
