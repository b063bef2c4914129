"""**What it does.** Takes `with FSDP.state_dict_type(model, ...)` away and reads or loads the state dicts in its
body with `torch.distributed.checkpoint.state_dict`.

**Why.** On an FSDP2 model the context does nothing, and says nothing: `model.state_dict()` inside it returns sharded
DTensors, and a checkpoint saved from rank 0 would hold only that rank's shard.

## Example

```python
import torch
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType


def save(net, rank, path):
    model = FSDP(net)
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        state = model.state_dict()
    if rank == 0:
        torch.save(state, path)
```

## Use instead

```python
import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


def save(net, rank, path):
    model = fully_shard(net)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    if rank == 0:
        torch.save(state, path)
```

## Fix safety

Same keys, order, dtypes and values (torch 2.13). A full state dict is loaded from rank 0 and broadcast, which also
finds missing keys. Where the program compiles a model or a part of one, functions of the support module keep the
`_orig_mod.` in the names, which torch's own take out. Where the body hands the model to a library, which may call
`state_dict()` in turn, a context of the support module has that gather in the place of a full one. Where an
`if` chooses one of two configs, its condition says on which ranks the state dict is kept; one that cannot be asked
below keeps it on every rank that either config names. Where run time chooses the kind, its condition says whether the
state dict is a whole one (`full_state_dict=not sharded`). `FSDP.set_state_dict_type(model, ...)` goes
where all that it holds for is read or loaded below it, in the same function, or where every model of the program is
given the same kind behind its constructor call; what `torch.distributed.checkpoint` alone takes is the same for each
kind. A context of LOCAL_STATE_DICT goes: FSDP2's own state dict is each rank's part. A file that FSDP1 saved holds flat
pieces, and is refused; with `--read-fsdp1-files` what is loaded there goes through functions of the support module that
read those, too (torch 2.13, 2 and 4 ranks, with use_orig_params and without). Files of `torch.save` that hold a
SHARDED_STATE_DICT are for review: FSDP1's do not load. A part (`model.encoder.state_dict()`) is read as the model is;
FSDP1 gathered of it what lies in units, and not what the root itself shards.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Finding, Fix, Import, Level, ModelKind, NotStatic, Rule, finding
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import enclosing, names_around
from codemods.reading.edits.block_layout import leave_context
from codemods.reading.edits.call_layout import append_argument
from codemods.reading.edits.layout import comments_in, removal
from codemods.reading.models.parts import UNITS_ONLY
from codemods.reading.state_dicts.choice import choice_around
from codemods.reading.state_dicts.chosen_setting import chosen_setting
from codemods.reading.state_dicts.dcp_alone import is_for_dcp_alone
from codemods.reading.state_dicts.own_keys import adds_keys
from codemods.reading.state_dicts.setting import depends_on_setting, is_set_in_sight, setting_of
from codemods.reading.state_dicts.setting_helpers import context_made, entered_by, helper_of, is_context
from codemods.reading.state_dicts.settings import Settings, settings
from codemods.tables.state_dicts import CONTEXT, LOADED_ALONE, LOADED_HINT, READ_ALONE, READ_HINT, SET, SETTINGS

from .calls import PREFIX, Body, rewrite_calls, rewrite_either
from .local import HINT as LOCAL_HINT
from .local import block_of, is_local, local
from .onward import calls_in, check_own, handed_on, is_state_of, loads, reads_below
from .rank_files import HINT as RANK_HINT
from .rank_files import MESSAGE as RANK_FILES
from .rank_files import deals_in_rank_files

CODE = "FM301"

_OF_LOCAL = "LOCAL_STATE_DICT is each rank's part of FSDP2's own, and files of FSDP1 of this kind do not load"


def fix(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    if not is_setting(call, ctx):
        return None
    found = ctx.plan.state_dicts.get(call)
    if found is not None:
        return _with_what_is_read(found, ctx)
    return None if is_by_helper(call, ctx) else _at_run_time(call, ctx)


def _with_what_is_read(found: Fix, ctx: PlannedContext) -> Fix:
    """A configuration that another setting is still given, which the support module keeps, stays where it is made."""
    others = (each for each in ctx.nodes(cst.Call) if is_setting(each, ctx) and ctx.plan.keeps_setting(each))
    given = (origin for each in others for arg in each.args for origin in ctx.origins(arg.value))
    read = (origin.node for origin in given if origin.node is not None and origin.file.path == ctx.path)
    lines = (enclosing(ctx, node, cst.SimpleStatementLine) for node in read)
    starts = {ctx.span(line)[0] for line in lines if line is not None}
    gone = [edit for edit in found.edits if not edit.text and any(edit.start <= at < edit.end for at in starts)]
    return replace(found, edits=[edit for edit in found.edits if edit not in gone]) if gone else found


def is_setting(call: cst.Call, ctx: Context) -> bool:
    """Whether a call sets a state-dict type, for a block or from there on."""
    return ctx.fsdp1(call.func) in {CONTEXT, *SETTINGS} or is_by_helper(call, ctx)


def is_by_helper(call: cst.Call, ctx: Context) -> bool:
    """Whether a function of the program's own sets it, for a block."""
    return helper_of(call, ctx) is not None


def in_place(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    """What becomes of a call where it stands; None where it sets a state-dict type for code that is not seen there."""
    if ctx.fsdp1(call.func) in SETTINGS:
        return _set_in_sight(call, ctx)
    function = ctx.scope(call)
    if isinstance(function, cst.FunctionDef) and context_made(ctx, function) is call:
        return _without_helper(call, function, ctx)
    try:
        never = _around_others(call, ctx)
        if never is not None or is_local(call, ctx):
            return never or local(call, ctx)
        return _rewrite(call, ctx)
    except NotStatic:
        return None


_OTHERS = frozenset({ModelKind.DDP, ModelKind.OTHER})


def _around_others(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    """A context of a model that is never FSDP's, nor around one: FSDP1 found nothing to set there, and raised a
    KeyError when it was left (torch 2.13). None for any other.
    """
    if not ctx.plan.migrates:
        return None  # what wraps it is not seen: a library, or another program
    model = call.args[0].value if call.args and ctx.fsdp1(call.func) == CONTEXT else None
    kinds = ctx.kinds(model) if model is not None else frozenset()
    if model is None or not kinds or not kinds <= _OTHERS or ctx.holds_parts(model):
        return None
    block, item = block_of(call, ctx)
    message = "state_dict_type goes: the model is never wrapped by FSDP, which raised a KeyError behind it"
    dead = [removal(ctx, statement) for statement in settings(call, ctx).dead]
    return Fix([*leave_context(ctx, block, item, ""), *dead], [finding(CODE, Level.REWRITTEN, ctx, call, message)])


def _without_helper(call: cst.Call, function: cst.FunctionDef, ctx: PlannedContext) -> Fix | None:
    """A function that only sets the kind for a block goes where none of the blocks needs it any more."""
    calls = entered_by(ctx, function)
    if calls is None or any(in_place(each, cast("PlannedContext", where)) is None for where, each in calls):
        return None
    message = f"{function.name.value} goes: the blocks that it was for read and load by torch.distributed.checkpoint"
    return Fix([removal(ctx, function)], [finding(CODE, Level.REWRITTEN, ctx, call, message)])


def _set_in_sight(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    """Taken away where each state dict that it holds for is seen, and none of another kind is met by it."""
    if not is_set_in_sight(call, ctx):
        return None
    reads = [each for each in ctx.nodes(cst.Call) if depends_on_setting(each, ctx) and _is_for(call, each, ctx)]
    try:
        chosen = settings(call, ctx) if reads or ctx.path in ctx.plan.usual_settings else None
    except NotStatic:
        return None
    by_method = ctx.wrapping.compiles(ctx.path) or adds_keys(ctx)
    if chosen is not None and by_method and not _keeps_names(reads, chosen, ctx):
        return None
    dead = chosen.dead if chosen is not None else ()
    line = enclosing(ctx, call, cst.SimpleStatementLine)
    message = "set_state_dict_type goes: what is read and loaded says itself of which kind it is"
    told = _told(call, ctx, message)
    if chosen is not None and not chosen.is_full and deals_in_rank_files(reads, ctx):
        told = finding(CODE, Level.REVIEW, ctx, call, f"{message}; {RANK_FILES}", RANK_HINT)
    gone = [*_with_choice(call, line, reads, ctx), *dead]
    return Fix([removal(ctx, statement) for statement in gone], [told])


def _with_choice(
    call: cst.Call, line: cst.CSTNode | None, reads: Sequence[cst.Call], ctx: Context
) -> Sequence[cst.CSTNode]:
    """The statement of a call; of the two that an `if` chooses, that `if` for the first, and nothing for the other."""
    chosen = [found for read in reads if (found := chosen_setting(read, ctx)) is not None]
    choice = enclosing(ctx, call, cst.If) if chosen else None
    if choice is None or comments_in(ctx.text[slice(*ctx.whole_lines(choice))]):
        return [line] if line is not None else []
    return [choice] if call is chosen[0].sets[0] else []


def _is_for(call: cst.Call, read: cst.Call, ctx: Context) -> bool:
    """Whether a call sets the kind for what is read or loaded, or is one of two that an `if` chooses."""
    chosen = chosen_setting(read, ctx)
    return setting_of(read, ctx) is call or (chosen is not None and call in chosen.sets)


def _keeps_names(reads: Sequence[cst.Call], chosen: Settings, ctx: PlannedContext) -> bool:
    """Whether a compiled model is read without torch's own functions, which take `_orig_mod.` out of the names.

    Its sharded state lies on the device then, which is nothing to `torch.distributed.checkpoint`.
    """
    if chosen.is_full or chosen.config["offload_to_cpu"] == "False":
        return True
    model = ctx.code(chosen.model)
    return all(is_for_dcp_alone(each, ctx) for each in reads if ctx.code(each.func) == f"{model}.state_dict")


def _rewrite(call: cst.Call, ctx: PlannedContext) -> Fix:
    block, item = block_of(call, ctx)
    found = choice_around(block.body, ctx)
    chosen = found.full if found is not None else settings(call, ctx)
    written = rewrite_either(block, found, ctx) if found is not None else rewrite_calls(block, chosen, ctx)
    check_own(block, ctx, chosen.model if chosen.is_full else None)
    onward = handed_on(block, chosen.model, written.edits, ctx) if chosen.is_full else []
    if onward:
        if found is not None:
            raise NotStatic("the kind is chosen, for code that is not seen")
        return _kept_full(call, chosen, written, onward, ctx)
    message = "state_dict_type context becomes torch.distributed.checkpoint.state_dict calls"
    level = Level.REVIEW if written.reads_part else Level.REWRITTEN
    if written.reads_part:
        message += f"; {UNITS_ONLY}"
    reads = [each for each in calls_in(block.body) if is_state_of(each, chosen.model, ctx)]
    if any(reads_below(each, ctx) for each in reads):
        level = Level.REVIEW
        message += "; a class of the program gathers by itself, and what that returns is not moved to the CPU"
    hint = ""
    if (found is not None or not chosen.is_full) and deals_in_rank_files(_of_model(block, chosen.model, ctx), ctx):
        level, hint = Level.REVIEW, RANK_HINT
        message += f"; {'of sharded ones, ' if found is not None else ''}{RANK_FILES}"
    if found is not None and found.may_be_local:
        level, hint = Level.REVIEW, LOCAL_HINT
        message += f"; {_OF_LOCAL}"
    if written.is_on_one_rank:
        level, hint = Level.MANUAL, READ_HINT
        message += f"; {READ_ALONE}"
    elif written.loads_on_one_rank:
        level, hint = Level.MANUAL, LOADED_HINT
        message += f"; {LOADED_ALONE}"
    line, dead = (found.line, found.dead) if found is not None else ("", chosen.dead)
    return Fix(
        edits=[*_edits(written, ctx, block, item, line), *(removal(ctx, statement) for statement in dead)],
        findings=[finding(CODE, level, ctx, call, message, hint)],
        imports=sorted(written.imports),
    )


def _of_model(block: cst.With, model: cst.BaseExpression, ctx: Context) -> list[cst.Call]:
    """The calls in a block that read the model's state dict, or load it."""
    methods = ("state_dict", "load_state_dict")
    return [each for each in calls_in(block.body) if is_state_of(each, model, ctx, methods)]


def _kept_full(call: cst.Call, chosen: Settings, written: Body, onward: Sequence[cst.Call], ctx: PlannedContext) -> Fix:
    """Code that is not seen reads the model, `model.save_pretrained(path)`, `library.save(model)`, or loads it."""
    contexts, imports = [], sorted(written.imports)
    for kind, is_needed, given in (
        ("full_state_loads", any(map(loads, onward)), ""),
        ("full_state_dicts", not all(map(loads, onward)), chosen.full_arguments),
    ):
        if is_needed:
            imports.append(ctx.named(Import(SUPPORT, kind), call))
            contexts.append(f"{imports[-1].local}({ctx.quote(chosen.model)}{given})")
    options = [append_argument(ctx, node, f"options={each}") for node, each in written.options]
    what = " and ".join(each.name for each in imports if each.module == SUPPORT and each.name.startswith("full_state_"))
    message = f"state_dict_type becomes {what}, a support function, for code that is not seen"
    return Fix(
        [Edit(*ctx.bare_span(call), ", ".join(contexts)), *written.edits, *options]
        + [removal(ctx, each) for each in chosen.dead],
        [finding(CODE, Level.REWRITTEN, ctx, call, message)],
        imports,
    )


def _edits(written: Body, ctx: PlannedContext, block: cst.With, item: cst.WithItem, above: str = "") -> list[Edit]:
    """Leave the context; name the options there when calls share them, or when a line would grow too long."""
    shared = _shared_options(written, ctx)
    variable = _fresh("options", block, ctx)
    options = []
    for node, text in written.options:
        argument = f"options={text if shared is None else variable}"
        options.append(append_argument(ctx, node, argument, block if len(block.items) == 1 else None))
    named = shared is not None and not _is_named_above(shared, block, ctx)
    line = f"{variable} = {shared}" if named else ""
    if above:
        start = ctx.whole_lines(block)[0]
        indent = ctx.text[start : ctx.span(block)[0]]
        line = f"{above}{ctx.newline}{indent}{line}" if line else above
    return [*leave_context(ctx, block, item, line), *written.edits, *options]


def _shared_options(written: Body, ctx: Context) -> str | None:
    """The options that get a name of their own."""
    texts = {text for _, text in written.options}
    several = len(written.options) > 1
    if len(texts) == 1 and (several or any(_is_long(ctx, node, text) for node, text in written.options)):
        return texts.pop()
    return None


def _is_named_above(options: str, block: cst.With, ctx: PlannedContext) -> bool:
    """Whether the last context before this one, in the same block, gives the same options the same name."""
    holder = ctx.parent(block)
    siblings = holder.body if isinstance(holder, (cst.IndentedBlock, cst.Module)) else ()
    for sibling in reversed([statement for statement in siblings if ctx.span(statement)[0] < ctx.span(block)[0]]):
        call = sibling.items[0].item if isinstance(sibling, cst.With) else None
        if isinstance(sibling, cst.With) and isinstance(call, cst.Call) and is_context(call, ctx):
            if is_local(call, ctx):
                return False
            above = _shared_options(rewrite_calls(sibling, settings(call, ctx), ctx), ctx)
            if above is not None:
                return above == options
    return False


def _fresh(name: str, block: cst.With, ctx: Context) -> str:
    """A name that the user gave to nothing else; one that the tool gave to options above is as good as new."""
    mine = f"{name} = StateDictOptions("
    if name not in names_around(ctx, block) or mine in ctx.code(ctx.scope(block)):
        return name
    return f"state_dict_{name}"


def _is_long(ctx: Context, node: cst.Call, options: str) -> bool:
    """Whether the line would pass the limit; a body is one level further in before than after."""
    offset = ctx.span(node)[1]
    line_start = ctx.text.rfind("\n", 0, offset) + 1
    return offset - line_start + len(options) + len("get_model_state_dict(, options=)") // 2 > ctx.width


def _at_run_time(call: cst.Call, ctx: Context) -> Fix:
    """The support module keeps the settings for each model, as FSDP1 did."""
    name = (ctx.fsdp1(call.func) or "").removeprefix(PREFIX)
    item = ctx.named(Import(SUPPORT, name), call)
    edits = [Edit(*ctx.bare_span(call.func), item.local)]
    message = f"{name} becomes {name}, a support function, which keeps the settings for each model"
    level, hint = Level.REWRITTEN, ""
    if is_local(call, ctx):
        level, hint = Level.REVIEW, LOCAL_HINT
        message += f"; {_OF_LOCAL}"
    elif ctx.fsdp1(call.func) == SET:
        return Fix(edits, [_told(call, ctx, message)], [item])
    elif _is_of_rank_files(call, ctx):
        level, hint = Level.REVIEW, RANK_HINT
        message += f"; {RANK_FILES}"
    return Fix(edits, [finding(CODE, level, ctx, call, message, hint)], [item])


def _is_of_rank_files(call: cst.Call, ctx: Context) -> bool:
    """Whether a context of sharded state dicts, or one that may be, is around files of single ranks."""
    kinds = {ctx.fsdp1(argument.value) for argument in call.args}
    block = enclosing(ctx, call, cst.With)
    if "StateDictType.SHARDED_STATE_DICT" not in kinds or block is None or not call.args:
        return False
    return deals_in_rank_files(_of_model(block, call.args[0].value, ctx), ctx)


def _told(call: cst.Call, ctx: Context, message: str) -> Finding:
    """What becomes of a `set_state_dict_type`: a library that reads the state dict itself gets no whole one by it."""
    models = [(at, read.value) for at, read in ctx.attributes("state_dict")]
    if any(ModelKind.FSDP in at.kinds(model) or at.holds_parts(model) for at, model in models):
        return finding(CODE, Level.REWRITTEN, ctx, call, message)
    message += "; where the model's state dict is read is not seen, and this rank's shards are read there"
    hint = "read it by get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))"
    return finding(CODE, Level.REVIEW, ctx, call, message, hint)


RULE = Rule(CODE, "state-dict-type-context", __doc__, nodes=(cst.Call,), fix=fix)
