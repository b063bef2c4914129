"""A call that makes a state ready for an optimizer, and the `load_state_dict` behind it."""

from __future__ import annotations

import libcst as cst

from codemods.api import SUPPORT, Edit, Import, NotStatic
from codemods.plan import PlannedContext
from codemods.reading.edits.call_layout import call_of, comment_on, line_above, line_below
from codemods.reading.edits.layout import comments_in, removal
from codemods.reading.edits.resharding import reshards
from codemods.reading.forwards.after_forward import holds_copies
from codemods.reading.optimizers.calls import Given
from codemods.reading.optimizers.loading import (
    STATES,
    has_tensors,
    is_on_first_rank_only,
    is_sharded,
    kinds_around,
    loading_of,
)
from codemods.reading.optimizers.makers import optimizer_loaded
from codemods.reading.optimizers.reading import has_own_group
from codemods.reading.state_dicts.choice import choice_around, either
from codemods.reading.state_dicts.setting import is_kept_at_run_time
from codemods.reading.wraps.flat_parameters import had_original_parameters
from codemods.tables.state_dicts import DCP, FULL, FULL_LOAD

from .by_name import Written


def load(call: cst.Call, name: str, given: Given, ctx: PlannedContext) -> Written:
    """Torch's own function for both; the support module's where the state is not seen to be loaded, or has no tensors.

    Raises NotStatic where it is not seen what is loaded into which optimizer.
    """
    found, state = loading_of(call, given, ctx), next((given[key].value for key in STATES if key in given), None)
    optimizer = given["optim"].value if "optim" in given else optimizer_loaded(call, ctx)
    optimizer = found.optimizer if found is not None else optimizer
    if state is None or "model" not in given or optimizer is None:
        raise NotStatic("it cannot be seen which optimizer loads it")
    model = given["model"].value
    sharded = is_sharded(call, name, state, ctx)
    text, imports = ctx.quote(state), []
    if not sharded and not had_original_parameters(model, ctx):
        imports.append(ctx.named(Import(SUPPORT, "with_own_steps"), call))
        text = f"{imports[-1].local}{text if text.startswith('(') else f'({text})'}"
    if ctx.wrapping.compiles(ctx.path):
        imports.append(ctx.named(Import(SUPPORT, "without_compiled_names"), call))
        text = f"{imports[-1].local}({text})"
    of_state = next(given[key] for key in STATES if key in given)
    said = [comment_on(ctx, argument) for argument in (given["model"], given.get("optim"), of_state)]
    arguments = list(zip((ctx.quote(model), ctx.quote(optimizer), text), said, strict=True))
    edits = [line_above(ctx, call, each) for each in comments_in(ctx.code(call)) if each not in said]
    on_first = not sharded and is_on_first_rank_only(call, name, state, ctx)
    seen = found if _is_of_one_kind(call, name, ctx) and (sharded or has_tensors(optimizer, ctx)) else None
    has_group = has_own_group(given, ctx)
    if has_group and (on_first or seen is None):
        # The first of all ranks would give every group the values of its own.
        raise NotStatic("the model is sharded over a process group of its own")
    if seen is None:
        imports.append(ctx.named(Import(SUPPORT, "optim_state_dict_to_load"), call))
        edits.append(Edit(*ctx.bare_span(call), call_of(ctx, call, imports[-1].local, arguments)))
        return Written("optim_state_dict_to_load, a support function", edits, imports)
    function = Import(DCP, "set_optimizer_state_dict")
    if on_first:
        function = Import(SUPPORT, "load_optimizer_state")
    else:
        options = ctx.named(Import(DCP, "StateDictOptions"), call)
        imports.append(options)
        whole = "" if sharded else FULL if has_group else FULL_LOAD
        chosen = choice_around(call, ctx)
        whole = either(chosen.test, whole, "") if chosen is not None else whole
        whole += ", " if whole else ""
        arguments.append((f"options={options.local}({whole}strict=False)", ""))
    imports.append(ctx.named(function, call))
    written = call_of(ctx, seen.replaced, imports[-1].local, arguments)
    if seen.result is not None:
        result = f"{ctx.quote(seen.result)} = {ctx.quote(seen.optimizer)}.state_dict()"
        written += line_below(ctx, call, result)
    edits.append(Edit(*ctx.bare_span(seen.replaced), written))
    if holds_copies(call, model, ctx, trained=True):
        lines, needed = reshards(ctx, [model], call)
        imports += needed
        edits += [line_above(ctx, call, line) for line in lines]
    edits += [removal(ctx, statement) for statement in seen.gone]
    for gone in seen.let_go:
        names = cst.ensure_type(ctx.parent(gone), cst.Tuple)
        kept = [ctx.quote(each.value) for each in names.elements if each is not gone]
        edits.append(Edit(*ctx.span(names), ", ".join(kept)))
    if seen.elsewise is not None:
        edits += _in_else(seen.elsewise, ctx)
    return Written(function.name, edits, imports)


def _in_else(statement: cst.CSTNode, ctx: PlannedContext) -> list[Edit]:
    """A statement below an `if` becomes its `else`; no blank line stands above that."""
    start, first = ctx.span(statement)[0], ctx.whole_lines(statement)[0]
    edits = [Edit(start, start, f"else:{ctx.newline}{ctx.text[first:start]}{ctx.indent}")]
    gap = len(ctx.text[:first]) - len(ctx.text[:first].rstrip())
    blank = ctx.text[first - gap : first]
    end = first - gap + blank.find("\n") + 1
    return [Edit(end, first, ""), *edits] if end < first else edits


def _is_of_one_kind(call: cst.Call, name: str, ctx: PlannedContext) -> bool:
    """Whether run time does not decide if a state is whole or sharded."""
    if name != "optim_state_dict_to_load":
        return True
    return not is_kept_at_run_time(call, ctx) and len(kinds_around(call, ctx)) <= 1
