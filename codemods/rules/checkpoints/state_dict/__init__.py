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
`_orig_mod.` in the names, which torch's own take out. Where the body hands the model to other code, which may call
`state_dict()` in turn, that context stays, as one of the support module; the others go. What one of two configs that a
condition chooses keeps on every rank is kept on every rank. `FSDP.set_state_dict_type(model, ...)` goes
where all that it holds for is read or loaded below it, in the same function. A context of LOCAL_STATE_DICT goes:
FSDP2's own state dict is each rank's part. A file that FSDP1 saved holds flat pieces, and is refused; with
`--read-fsdp1-files` what is loaded there goes through functions of the support module that read those, too (torch 2.13,
2 and 4 ranks, with use_orig_params and without).

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Fix, Import, Level, ModelKind, NotStatic, Rule, finding
from codemods.plan import PlannedContext
from codemods.reading.block_layout import replace_head
from codemods.reading.call_layout import append_argument
from codemods.reading.enclosing import contains, enclosing, names_around
from codemods.reading.layout import removal
from codemods.reading.optimizer_calls import function_of
from codemods.reading.state_dict_setting import depends_on_setting, is_set_in_sight, setting_of
from codemods.reading.state_dict_settings import settings
from codemods.tables.state_dicts import CONTEXT, SETTINGS

from .calls import PREFIX, Body, rewrite_calls
from .local import HINT as LOCAL_HINT
from .local import block_of, calls_in, is_local, local

CODE = "FM301"

_ASKING = frozenset({"hasattr", "id", "isinstance", "len", "type"})
"""Builtins that look at a model, and not into its state dict."""

_DEPTH = 2
"""How many functions are followed that a body calls."""


def match(node: cst.CSTNode, ctx: Context) -> cst.Call | None:
    if isinstance(node, cst.Call) and ctx.fsdp1(node.func) in {CONTEXT, *SETTINGS}:
        return node
    return None


def in_place(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    """What becomes of a call where it stands; None where it sets a state-dict type for code that is not seen there."""
    if ctx.fsdp1(call.func) != CONTEXT:
        return _set_in_sight(call, ctx)
    if is_local(call, ctx):
        return local(call, ctx)
    try:
        return _rewrite(call, ctx)
    except NotStatic:
        return None


def _set_in_sight(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    """Taken away where each state dict that it holds for is seen, and none of another kind is met by it."""
    if not is_set_in_sight(call, ctx):
        return None
    reads = [each for each in ctx.nodes(cst.Call) if depends_on_setting(each, ctx) and setting_of(each, ctx) is call]
    if reads and ctx.wrapping.compiles(ctx.path):
        return None
    try:
        dead = settings(call, ctx).dead if reads else ()
    except NotStatic:
        return None
    line = enclosing(ctx, call, cst.SimpleStatementLine)
    message = "set_state_dict_type goes: what is read and loaded says itself of which kind it is"
    return Fix(
        [removal(ctx, statement) for statement in (line, *dead) if statement is not None],
        [finding(CODE, Level.REWRITTEN, ctx, call, message)],
    )


def edit(call: cst.Call, ctx: PlannedContext) -> Fix:
    return ctx.plan.state_dicts.get(call) or _at_run_time(call, ctx)


def _rewrite(call: cst.Call, ctx: PlannedContext) -> Fix:
    block = block_of(call, ctx)
    chosen = settings(call, ctx)
    written = rewrite_calls(block, chosen, ctx)
    _check_rest(block, chosen.model, ctx, written)
    message = "state_dict_type context becomes torch.distributed.checkpoint.state_dict calls"
    return Fix(
        edits=[*_edits(written, ctx, block), *(removal(ctx, statement) for statement in chosen.dead)],
        findings=[finding(CODE, Level.REWRITTEN, ctx, call, message)],
        imports=sorted(written.imports),
    )


def _edits(written: Body, ctx: PlannedContext, block: cst.With) -> list[Edit]:
    """Remove the `with` line; name the options there when calls share them, or when a line would grow too long."""
    shared = _shared_options(written, ctx)
    variable = _fresh("options", block, ctx)
    options = []
    for node, text in written.options:
        argument = f"options={text if shared is None else variable}"
        options.append(append_argument(ctx, node, argument, block))
    named = shared is not None and not _is_named_above(shared, block, ctx)
    return [*replace_head(ctx, block, f"{variable} = {shared}" if named else ""), *written.edits, *options]


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
        if isinstance(sibling, cst.With) and isinstance(call, cst.Call) and ctx.fsdp1(call.func) == CONTEXT:
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


def _check_rest(block: cst.With, model: cst.BaseExpression, ctx: Context, written: Body) -> None:
    """No other code may see the model inside the context: it could call `state_dict()` in turn."""
    name = ctx.code(model)
    own = _functions_of(block, ctx)
    for call in calls_in(block.body):
        for where, function in ctx.runs(call):
            if function in own:
                continue  # its calls are among those of the body
            if any(_asks_for_setting(inner, where) for inner in calls_in(function.body)):
                raise NotStatic(f"its body calls `{ctx.code(call.func)}`, which deals in state dicts itself")
    for node in _names(block.body):
        holder = ctx.parent(node)
        if ctx.code(node) != name or not isinstance(holder, cst.Arg):
            continue
        start, end = ctx.span(node)
        if any(change.start <= start and end <= change.end for change in written.edits):
            continue
        user = ctx.parent(holder)
        if not isinstance(user, cst.Call) or not _is_seen_through(user, ctx):
            raise NotStatic(f"its body passes `{name}` to other code")


def _is_seen_through(call: cst.Call, ctx: Context, depth: int = _DEPTH) -> bool:
    """Whether what a call does with a model it is given is seen, and asks for no setting."""
    asks = isinstance(call.func, cst.Name) and call.func.value in _ASKING
    if asks or (ctx.fsdp1(call.func) or "").startswith(PREFIX):
        return True
    inner = [(where, each) for where, function in ctx.runs(call) for each in calls_in(function.body)] if depth else []
    return bool(inner) and all(
        not _asks_for_setting(each, where) and (not _hands_on(each, where) or _is_seen_through(each, where, depth - 1))
        for where, each in inner
    )


def _hands_on(call: cst.Call, ctx: Context) -> bool:
    return any(ModelKind.FSDP in ctx.kinds(argument.value) for argument in call.args)


def _asks_for_setting(call: cst.Call, ctx: Context) -> bool:
    """Whether it does not say itself of which kind a state dict is: what is loaded into an optimizer can be seen."""
    return depends_on_setting(call, ctx) and function_of(call, ctx) != "optim_state_dict_to_load"


def _functions_of(block: cst.With, ctx: Context) -> list[cst.CSTNode]:
    """The functions that the body defines, where nothing behind it calls them."""
    defined = [node for node in ctx.inside(block.body) if isinstance(node, cst.FunctionDef)]
    names = {function.name.value for function in defined}
    others = [node for node in ctx.nodes(cst.Name) if node.value in names and not contains(ctx, block, node)]
    if others and any(ctx.scope(node) is ctx.scope(block) for node in others):
        raise NotStatic("a function that its body defines is used outside of it")
    return list(defined)


def _names(node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    if isinstance(node, (cst.Name, cst.Attribute)):
        yield node
    for child in node.children:
        yield from _names(child)


def _at_run_time(call: cst.Call, ctx: Context) -> Fix:
    """The support module keeps the settings for each model, as FSDP1 did."""
    name = (ctx.fsdp1(call.func) or "").removeprefix(PREFIX)
    item = ctx.named(Import(SUPPORT, name), call)
    edits = [Edit(*ctx.bare_span(call.func), item.local)]
    message = f"{name} becomes {name} of the support module, which keeps the settings for each model"
    level, hint = Level.REWRITTEN, ""
    if is_local(call, ctx):
        level, hint = Level.REVIEW, LOCAL_HINT
        message += "; LOCAL_STATE_DICT is each rank's part of FSDP2's own, and files of FSDP1 of this kind do not load"
    return Fix(edits, [finding(CODE, level, ctx, call, message, hint)], [item])


RULE: Rule[cst.Call] = Rule(
    CODE, "state-dict-type-context", __doc__, nodes=(cst.Call,), methods=(), match=match, edit=edit
)
