"""The model's calls in the body of a `state_dict_type` context, and what each becomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Import, ModelKind, NotStatic
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import enclosing
from codemods.reading.edits.call_layout import argument_removal, line_above, own_line
from codemods.reading.edits.resharding import reshards
from codemods.reading.forwards.after_forward import holds_copies
from codemods.reading.models.parts import compiled_from, is_named_in, model_around, unwrapped
from codemods.reading.models.plain_objects import may_be_plain
from codemods.reading.optimizers.loading import is_loaded_either_way
from codemods.reading.optimizers.reading import READERS, options_in_context
from codemods.reading.processes.one_rank import is_on_one_rank, is_reached_by_one_rank
from codemods.reading.state_dicts.by_class import own_arguments, receiver
from codemods.reading.state_dicts.choice import Choice, either
from codemods.reading.state_dicts.dcp_alone import comes_from_dcp, is_for_dcp_alone
from codemods.reading.state_dicts.dcp_format import is_loaded_by_dcp, is_saved_by_dcp
from codemods.reading.state_dicts.model_loading import PAST_OWN, has_own_method, loading, options_to_load
from codemods.reading.state_dicts.own_keys import adds_keys
from codemods.reading.state_dicts.saves import may_alias
from codemods.reading.state_dicts.settings import Settings, reading_options
from codemods.reading.units.walked import walked_from
from codemods.reading.wraps.process_groups import has_group_of_its_own
from codemods.tables.state_dicts import DCP, FULL, OPTIMIZER_CALLS

PREFIX = "FullyShardedDataParallel."


@dataclass
class Body:
    """The rewritten calls of one body."""

    edits: list[Edit] = field(default_factory=list)
    imports: set[Import] = field(default_factory=set)
    options: list[tuple[cst.Call, str]] = field(default_factory=list)
    """Calls that take `options=`, and its value."""
    reads_part: bool = False
    """Whether one of them reads a part of the model: `model.encoder.state_dict()`."""
    is_on_one_rank: bool = False
    """Whether one of them gathers, and the other ranks do not come there."""
    loads_on_one_rank: bool = False
    """Whether one of them loads, and the other ranks do not come there."""

    def name(self, item: Import, node: cst.Call, ctx: Context) -> str:
        """What an import is called where `node` stands."""
        named = ctx.named(item, node)
        self.imports.add(named)
        return named.local

    def take_options(self, node: cst.Call, options: str, ctx: Context) -> None:
        if options:
            self.options.append((node, f"{self.name(Import(DCP, 'StateDictOptions'), node, ctx)}({options})"))


def rewrite_calls(block: cst.With, chosen: Settings, ctx: PlannedContext) -> Body:
    """Raises NotStatic when the body does something with state dicts that has no counterpart.

    FSDP1's static methods that deal in optimizers are left to their own rule, but for the options that they share.
    """
    written = Body()
    for node in _calls(block.body):
        static, model = (ctx.fsdp1(node.func) or "").removeprefix(PREFIX), receiver(node, ctx)
        if static and static not in (*OPTIMIZER_CALLS, "load_state_dict", "state_dict"):
            raise NotStatic(f"its body calls `{ctx.code(node.func)}`")
        if static in OPTIMIZER_CALLS:
            written.take_options(node, options_in_context(node, ctx) or "", ctx)
        elif isinstance(node.func, cst.Attribute) and model is not None and _is_of_context(node, model, chosen, ctx):
            _rewrite_method(node, model, node.func.attr.value, chosen, block, ctx, written)
    return written


def rewrite_either(block: cst.With, found: Choice, ctx: PlannedContext) -> Body:
    """The same where run time chooses the kind. Raises NotStatic where the two ask for more than other options."""
    for node in _calls(block.body):
        static = (ctx.fsdp1(node.func) or "").removeprefix(PREFIX)
        if static in READERS:
            is_seen = options_in_context(node, ctx) is not None
        else:
            is_seen = static not in OPTIMIZER_CALLS or is_loaded_either_way(node, ctx)
        if not is_seen:
            raise NotStatic(f"its body calls `{ctx.code(node.func)}`")
    full, parts = (rewrite_calls(block, each, ctx) for each in (found.full, found.parts))
    if full.edits != parts.edits:
        raise NotStatic("a whole state dict needs a function of its own")
    texts = [{node: _inside(text) for node, text in each.options} for each in (full, parts)]
    nodes = dict.fromkeys(node for each in (full, parts) for node, _ in each.options)
    full.imports |= parts.imports
    full.options = []
    for node in nodes:
        full.take_options(node, either(found.test, *(each.get(node, "") for each in texts)), ctx)
    return full


def _inside(options: str) -> str:
    """What `StateDictOptions(…)` is given."""
    return options.partition("(")[2].removesuffix(")")


def _is_of_context(node: cst.Call, model: cst.BaseExpression, chosen: Settings, ctx: Context) -> bool:
    is_read = isinstance(node.func, cst.Attribute) and node.func.attr.value == "state_dict"
    if _is_of(model, chosen.model, ctx):
        return True
    return is_read and (_is_of(compiled_from(model, ctx), chosen.model, ctx) or walked_from(model, ctx) is not None)


def _is_of(owner: cst.BaseExpression, model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether it is the model of the context, or a part of it."""
    around = model_around(owner, ctx) or owner
    return ctx.code(unwrapped(around)) == ctx.code(unwrapped(model)) or is_named_in(owner, model, ctx)


def _calls(node: cst.CSTNode) -> Iterator[cst.Call]:
    for child in node.children:
        yield from _calls(child)
    if isinstance(node, cst.Call):
        yield node


def _rewrite_method(
    node: cst.Call,
    owner: cst.BaseExpression,
    method: str,
    chosen: Settings,
    block: cst.With,
    ctx: PlannedContext,
    written: Body,
) -> None:
    model = ctx.quote(owner)
    start, end = ctx.bare_span(node)
    names = {ctx.code(unwrapped(each)) for each in (owner, compiled_from(owner, ctx))}
    if method == "state_dict" and ctx.code(unwrapped(chosen.model)) not in names:
        if is_on_one_rank(node, ctx):
            raise NotStatic("one rank alone reads a part of the model")
        written.reads_part |= walked_from(owner, ctx) is None
    if method == "state_dict" and not own_arguments(node, ctx):
        is_dcps = is_saved_by_dcp(node, ctx) or (chosen.is_full and is_for_dcp_alone(node, ctx))
        written.is_on_one_rank |= chosen.is_full and not is_dcps and is_reached_by_one_rank(node, ctx)
        options = "" if is_dcps else reading_options(node, chosen, ctx)
        if options and chosen.is_full and walked_from(owner, ctx) is not None:
            options = None  # the first rank of each unit's own group: stages of a pipeline do not have rank 0
        by_method = ctx.wrapping.compiles(ctx.path) or adds_keys(ctx)
        if by_method and not options and options is not None:
            return  # FSDP2's own sharded state dict: the new function would take `_orig_mod.` out of the names
        if by_method and not chosen.is_full:
            raise NotStatic("the new functions take `_orig_mod.` out of the names of a compiled model, or refuse keys")
        is_alias = options == FULL and may_alias(node, ctx)
        if options is None or is_alias or by_method:
            more = chosen.full_arguments
            function = "full_state_dict" if more or may_alias(node, ctx) else "whole_state_dict"
            name = written.name(Import(SUPPORT, function), node, ctx)
            written.edits.append(Edit(start, end - 1, f"{name}({model}{more}"))
        else:
            name = written.name(Import(DCP, "get_model_state_dict"), node, ctx)
            written.edits.append(Edit(start, end - 1, f"{name}({model}"))
            written.take_options(node, options, ctx)
    elif method == "load_state_dict":
        _load(node, model, chosen, block, ctx, written)
    elif method == "state_dict":
        raise NotStatic(f"`{ctx.code(chosen.model)}.state_dict` takes arguments of its own")


def _load(node: cst.Call, model: str, chosen: Settings, block: cst.With, ctx: PlannedContext, written: Body) -> None:
    load = loading(node, ctx)
    written.loads_on_one_rank |= is_on_one_rank(node, ctx)
    is_full = chosen.is_full and not is_loaded_by_dcp(load.state, ctx) and not comes_from_dcp(node, ctx)
    start, first = ctx.bare_span(node)[0], ctx.span(load.state)[0]
    gap = own_line(ctx, node.args[0], block)
    if ctx.wrapping.compiles(ctx.path) and not is_full:
        return
    is_unsaid = load.is_lenient and load.result_is_used
    is_elsewhere = has_group_of_its_own(ctx, chosen.model) or _may_load_by_itself(chosen.model, ctx)
    goes_past = has_own_method(chosen.model, ctx)
    if is_full and (ctx.wrapping.compiles(ctx.path) or is_unsaid or is_elsewhere or goes_past):
        # Torch reports no missing key when it broadcasts: it fills them in from the model. It broadcasts to all ranks.
        name = written.name(Import(SUPPORT, PAST_OWN if goes_past else "load_full_state_dict"), node, ctx)
        written.edits.append(Edit(start, first, f"{name}({gap}{model},{gap or ' '}"))
        return
    if goes_past:
        name = f"{written.name(Import('torch', 'nn'), node, ctx)}.Module.load_state_dict"
        written.edits.append(Edit(start, first, f"{name}({gap}{model},{gap or ' '}"))
        return
    name = written.name(Import(DCP, "set_model_state_dict"), node, ctx)
    copies = is_full and load.is_read_again  # torch puts the model's own DTensors into what it loads
    written.edits.append(Edit(start, first, f"{name}({gap}{model},{gap or ' '}{'dict(' if copies else ''}"))
    if copies:
        end = ctx.span(load.state)[1]
        written.edits.append(Edit(end, end, ")"))
    if is_full and holds_copies(node, chosen.model, ctx, trained=True) and not may_be_plain(ctx, chosen.model):
        lines, imports = reshards(ctx, [chosen.model], node)  # torch would load into the copies, and raise
        written.edits += [line_above(ctx, node, line) for line in lines]
        written.imports.update(imports)
    options = options_to_load(load, chosen.model, chosen.loading, ctx) if is_full else ""
    if load.strict is not None:
        written.edits += argument_removal(ctx, node, load.strict)
    strict = f"strict={ctx.quote(load.strict.value)}" if load.strict is not None and load.is_lenient else ""
    written.take_options(node, ", ".join(filter(None, [options, strict])), ctx)


def _may_load_by_itself(model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether it can be an object whose own `load_state_dict` gives its sharded models what each rank has read."""
    if not ctx.kinds(model) & {ModelKind.OTHER, ModelKind.UNKNOWN}:
        return False
    for where, function in ctx.attributes("load_state_dict"):
        method = enclosing(where, function, cst.FunctionDef)
        is_own = method is not None and method.name.value == "load_state_dict"
        if is_own and ModelKind.FSDP in where.kinds(function.value):
            return True
    return False
