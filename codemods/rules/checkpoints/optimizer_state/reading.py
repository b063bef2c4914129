"""A call that reads an optimizer's state."""

from __future__ import annotations

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Import
from codemods.plan import PlannedContext
from codemods.reading.edits.call_layout import line_above, quoted_argument
from codemods.reading.edits.dead import states_made_for
from codemods.reading.edits.layout import removal
from codemods.reading.edits.resharding import reshards
from codemods.reading.forwards.calls import GRAD_MODES, runs
from codemods.reading.optimizers.calls import Given
from codemods.reading.optimizers.first_step import may_be_before_first_step
from codemods.reading.optimizers.reading import config_of, is_decided_at_run_time, options_in_context, options_of
from codemods.reading.state_dicts.settings import context_of
from codemods.tables.state_dicts import DCP, FULL, OPTIMIZER_CALLS

from .by_name import Written, as_function, renamed

OWN_STATE = "optim_state_dict"
"""The argument that has the optimizer's own state dict, which FSDP1 would else have asked for."""


def read(call: cst.Call, name: str, given: Given, ctx: PlannedContext) -> Written:
    """Raises NotStatic where it is not seen what is read."""
    written = _by_torch(call, name, given, ctx) or _by_support(call, name, given, ctx)
    edits, imports = [*written.edits, *_without_own_state(given, ctx)], [*written.imports]
    if not _reshards_before(call, given, ctx):
        lines, needed = reshards(ctx, [given["model"].value], call)
        imports += needed
        edits += [line_above(ctx, call, line) for line in lines]
    options = options_of(call, name, given, ctx)
    return Written(written.becomes, edits, imports, gathers=options is None or FULL in options)


def _without_own_state(given: Given, ctx: PlannedContext) -> list[Edit]:
    """`state = optimizer.state_dict()` above goes where it was made for this call alone, which takes none any more."""
    if OWN_STATE not in given:
        return []
    dead = states_made_for(ctx, given[OWN_STATE].value, ctx.code(given["optim"].value))
    return [removal(ctx, statement) for statement in dead]


def _by_torch(call: cst.Call, name: str, given: Given, ctx: PlannedContext) -> Written | None:
    options = options_of(call, name, given, ctx)
    if options is None:
        return None
    function = Import(DCP, "get_optimizer_state_dict")
    if may_be_before_first_step(call, given["optim"].value, ctx):
        function = Import(SUPPORT, "read_optimizer_state")
    imports, more, is_compiled = [ctx.named(function, call)], "", ctx.wrapping.compiles(ctx.path)
    is_put_by_context = context_of(call, ctx) is not None and options_in_context(call, ctx) is not None
    if options and not is_put_by_context:
        imports.append(ctx.named(Import(DCP, "StateDictOptions"), call))
        more = f", options={imports[-1].local}({options})"
    left_out = (*OPTIMIZER_CALLS[name].dropped, "rank0_only")
    named = given["optim"].keyword if function.module == DCP else None  # which torch calls `optimizers`
    if is_compiled or (more and "\n" not in ctx.code(call)):
        kept = {key: quoted_argument(ctx, each) for key, each in given.items() if key not in left_out}
        if named is not None:
            kept["optim"] = f"optimizers={ctx.quote(given['optim'].value)}"
        called, arguments = imports[0].local, ", ".join(kept.values()) + more
        if is_compiled:
            imports.append(ctx.named(Import(SUPPORT, "with_compiled_names"), call))
            called, arguments = imports[-1].local, f"{ctx.quote(given['model'].value)}, {called}({arguments})"
        text = f"{called}({arguments})"
        return Written(function.name, [Edit(*ctx.bare_span(call), text)], imports)
    edits = renamed(call, imports[0].local, given, left_out, more, ctx)
    edits += [Edit(*ctx.span(named), "optimizers")] if named is not None else []
    return Written(function.name, edits, imports)


def _by_support(call: cst.Call, name: str, given: Given, ctx: PlannedContext) -> Written:
    """A full state that torch's function would leave on the device, or give to the first of all ranks only.

    So is one of the kind that run time knows.
    """
    if is_decided_at_run_time(call, name, ctx):
        return _named(as_function(call, name, given, ctx), call, given, ctx)
    config = config_of(call, name, given, ctx)
    more = ", rank0_only=True" if config["rank0_only"] == "True" and "rank0_only" not in given else ""
    more += "" if config["offload_to_cpu"] == "True" else f", offload_to_cpu={config['offload_to_cpu']}"
    if may_be_before_first_step(call, given["optim"].value, ctx):
        more += ", has_stepped=False"
    needless = ("rank0_only",) if config["rank0_only"] == "False" else ()
    return _named(as_function(call, name, given, ctx, "full_optim_state_dict", more, needless), call, given, ctx)


def _named(written: Written, call: cst.Call, given: Given, ctx: PlannedContext) -> Written:
    """With the names of a compiled model around it, where a program compiles one."""
    if not ctx.wrapping.compiles(ctx.path):
        return written
    names = ctx.named(Import(SUPPORT, "with_compiled_names"), call)
    start, end = ctx.bare_span(call)
    around = [Edit(start, start, f"{names.local}({ctx.quote(given['model'].value)}, "), Edit(end, end, ")")]
    return Written(written.becomes, [*written.edits, *around], [*written.imports, names])


def _reshards_before(call: cst.Call, given: Given, ctx: Context) -> bool:
    """Whether no evaluation leaves copies in the model: the program has none, or the model's state is read before."""
    if not ctx.mentions(*GRAD_MODES):
        return True
    start, model = ctx.span(call)[0], ctx.code(given["model"].value)
    above = [each for each in ctx.calls(ctx.scope(call)) if ctx.span(each)[1] <= start]
    read = max((ctx.span(each)[0] for each in above if _reads_state(each, model, ctx)), default=-1)
    return read >= 0 and not any(ctx.span(each)[0] > read and runs(each, model, ctx) for each in above)


def _reads_state(call: cst.Call, model: str, ctx: Context) -> bool:
    function = call.func
    is_method = isinstance(function, cst.Attribute) and ctx.code(function.value) == model
    return is_method and cst.ensure_type(function, cst.Attribute).attr.value in {"state_dict", "load_state_dict"}
