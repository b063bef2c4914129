"""A call that makes a state ready for an optimizer, and the `load_state_dict` behind it."""

from __future__ import annotations

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Import
from codemods.plan import PlannedContext
from codemods.reading.call_layout import call_text, line_above, line_below
from codemods.reading.first_step import may_be_before_first_step
from codemods.reading.flat_parameters import had_original_parameters
from codemods.reading.forwards import reads_after_forward
from codemods.reading.layout import comments_in, removal
from codemods.reading.optimizer_calls import Given, arguments_of, function_of
from codemods.reading.optimizer_loading import STATES, is_on_first_rank_only, is_sharded, kinds_around, loading_of
from codemods.reading.optimizer_reading import READERS
from codemods.reading.optimizers import is_stateless
from codemods.reading.state_dict_setting import is_kept_at_run_time
from codemods.tables.state_dicts import DCP, FULL_LOAD

from .by_name import Written


def load(call: cst.Call, name: str, given: Given, ctx: PlannedContext) -> Written | None:
    """Torch's own function for both; None where it would not do the same."""
    state = next((given[key].value for key in STATES if key in given), None)
    found = loading_of(call, given, ctx)
    if found is None or state is None or "model" not in given or comments_in(ctx.code(call)):
        return None
    model = given["model"].value
    if is_kept_at_run_time(call, ctx) or ctx.wrapping.compiles(ctx.path):
        return None
    if name == "optim_state_dict_to_load" and len(kinds_around(call, ctx)) > 1:
        return None  # full or sharded, which the support module's function sees at run time
    sharded = is_sharded(call, name, state, ctx)
    if not sharded and (is_stateless(found.optimizer, ctx) or _saves_before_first_step(ctx)):
        return None
    text, imports = ctx.quote(state), []
    if not sharded and not had_original_parameters(model, ctx):
        imports.append(ctx.named(Import(SUPPORT, "with_own_steps"), call))
        text = f"{imports[0].local}({text})"
    arguments = f"{ctx.quote(model)}, {ctx.quote(found.optimizer)}, {text}"
    function = Import(DCP, "set_optimizer_state_dict")
    if not sharded and is_on_first_rank_only(call, name, state, ctx):
        function = Import(SUPPORT, "load_optimizer_state")
    else:
        options = ctx.named(Import(DCP, "StateDictOptions"), call)
        imports.append(options)
        arguments += f", options={options.local}({'' if sharded else f'{FULL_LOAD}, '}strict=False)"
    imports.append(ctx.named(function, call))
    old = found.replaced if isinstance(found.replaced, cst.Call) else call
    written = call_text(ctx, old, imports[-1].local, arguments)
    if found.result is not None:
        result = f"{ctx.quote(found.result)} = {ctx.quote(found.optimizer)}.state_dict()"
        written += line_below(ctx, call, result)
    edits = [Edit(*ctx.bare_span(found.replaced), written)]
    if reads_after_forward(call, model, ctx):
        imports.append(ctx.named(Import(SUPPORT, "reshard_all"), call))
        edits.append(line_above(ctx, call, f"{imports[-1].local}({ctx.code(model)})"))
    if found.gone is not None:
        edits.append(removal(ctx, found.gone))
    return Written(function.name, edits, imports)


def _saves_before_first_step(ctx: Context) -> bool:
    """Whether the program can save an optimizer that has no state yet: torch would count a step when it is loaded."""
    for where, function in ctx.attributes(*READERS):
        call = where.parent(function)
        name = function_of(call, where) if isinstance(call, cst.Call) and call.func is function else None
        if isinstance(call, cst.Call) and name is not None:
            optimizer = arguments_of(call, name, where).get("optim")
            if optimizer is not None and may_be_before_first_step(call, optimizer.value, where):
                return True
    return False
