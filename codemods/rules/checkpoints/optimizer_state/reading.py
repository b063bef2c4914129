"""A call that reads an optimizer's state."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Import
from codemods.plan import PlannedContext
from codemods.reading.call_layout import call_text, line_above, quoted_argument
from codemods.reading.dcp_format import is_saved_by_dcp
from codemods.reading.first_step import may_be_before_first_step
from codemods.reading.optimizer_calls import Given
from codemods.reading.optimizer_reading import config_of, options_in_context, options_of
from codemods.reading.state_dict_setting import is_kept_at_run_time
from codemods.reading.state_dict_settings import context_of
from codemods.tables.state_dicts import DCP, OPTIMIZER_CALLS

from .by_name import Written, as_function, renamed


def read(call: cst.Call, name: str, given: Given, ctx: PlannedContext) -> Written:
    """Raises NotStatic where it is not seen what is read."""
    options = options_of(call, name, given, ctx)
    if options is None:
        return _by_support(call, name, given, ctx)
    function = Import(DCP, "get_optimizer_state_dict")
    if may_be_before_first_step(call, given["optim"].value, ctx):
        function = Import(SUPPORT, "read_optimizer_state")
    imports, more = [ctx.named(function, call)], ""
    is_put_by_context = context_of(call, ctx) is not None and options_in_context(call, ctx) is not None
    if options and not is_put_by_context:
        imports.append(ctx.named(Import(DCP, "StateDictOptions"), call))
        more = f", options={imports[-1].local}({options})"
    left_out = (*OPTIMIZER_CALLS[name].dropped, "rank0_only")
    named = given["optim"].keyword if function.module == DCP else None  # which torch calls `optimizers`
    if more and "\n" not in ctx.code(call):
        kept = {key: quoted_argument(ctx, each) for key, each in given.items() if key not in left_out}
        if named is not None:
            kept["optim"] = f"optimizers={ctx.quote(given['optim'].value)}"
        edits = [Edit(*ctx.bare_span(call), call_text(ctx, call, imports[0].local, ", ".join(kept.values()) + more))]
    else:
        edits = renamed(call, imports[0].local, given, left_out, more, ctx)
        edits += [Edit(*ctx.span(named), "optimizers")] if named is not None else []
    if not _reshards_before(call, given, ctx):
        imports.append(ctx.named(Import(SUPPORT, "reshard_all"), call))
        edits.append(line_above(ctx, call, f"{imports[-1].local}({ctx.code(given['model'].value)})"))
    return Written(function.name, edits, imports)


def _by_support(call: cst.Call, name: str, given: Given, ctx: PlannedContext) -> Written:
    if is_kept_at_run_time(call, ctx) and name == "optim_state_dict":
        return as_function(call, name, given, ctx)
    config = config_of(call, name, given, ctx)
    if "rank0_only" not in config or is_saved_by_dcp(call, ctx):
        is_offloaded = config["offload_to_cpu"] == "True" or "rank0_only" in config
        more = "" if is_offloaded else f", offload_to_cpu={config['offload_to_cpu']}"
        return as_function(call, name, given, ctx, "sharded_optim_state_dict", more)
    more = "" if name == "full_optim_state_dict" else _changed(config)
    return as_function(call, name, given, ctx, "full_optim_state_dict", more)


def _changed(config: Mapping[str, str]) -> str:
    """The fields of a config that are not what the support module takes for granted."""
    return "".join(f", {key}={config[key]}" for key in ("rank0_only", "offload_to_cpu") if config[key] != "True")


def _reshards_before(call: cst.Call, given: Given, ctx: Context) -> bool:
    """Whether no evaluation leaves copies in the model: the program has none, or the model's state is read before."""
    if not ctx.mentions("no_grad", "inference_mode"):
        return True
    start, model = ctx.span(call)[0], ctx.code(given["model"].value)
    above = (each for each in ctx.calls(ctx.scope(call)) if ctx.span(each)[1] <= start)
    return any(_reads_state(each, model, ctx) for each in above)


def _reads_state(call: cst.Call, model: str, ctx: Context) -> bool:
    function = call.func
    is_method = isinstance(function, cst.Attribute) and ctx.code(function.value) == model
    return is_method and cst.ensure_type(function, cst.Attribute).attr.value in {"state_dict", "load_state_dict"}
