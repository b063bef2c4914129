"""Models on the meta device, and `param_init_fn`: FSDP1 gave each unit its values just before it sharded the unit.

Afterwards would draw other random numbers, since an initialisation would see shards. `fully_shard` takes a unit on the
meta device as it is, and leaves the values to the user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst

from codemods.api import SUPPORT, Context, NotStatic, Origin
from codemods.reading.code.enclosing import call_given, contains, upward
from codemods.reading.code.places import base
from codemods.reading.code.program import others
from codemods.reading.code.shapes import is_attribute
from codemods.reading.code.words import is_name, last_name
from codemods.reading.edits.negation import conjuncts
from codemods.reading.models.makeup import Makeup
from codemods.reading.processes.one_rank import is_on_one_rank
from codemods.reading.wraps.manual import argument_name

from ..draft import Draft, Entry, Note
from ..mesh.ranks import is_any_accelerator
from .placement import groups_of_mesh, is_named, one_group, truth

_CALLS = 3
"""Over how many calls a `with torch.device("meta")` is looked for around the place that makes the model."""

_DEVICES = frozenset({"device", "to", "to_empty", "set_default_device"})
_EMPTY = "init_empty_weights"
"""The context of accelerate and others that makes a model on the meta device."""

_FILLING = frozenset(
    {
        *("load_checkpoint_and_dispatch", "load_checkpoint_in_model", "load_model_dict_into_meta"),
        "set_module_tensor_to_device",
    }
)
"""Functions of accelerate and diffusers that give values to a model on the meta device, their first argument."""


TAKEN = frozenset({"param_init_fn", "sync_module_states"})
"""The arguments that give units their values."""


def meta_of_entry(entries: Mapping[str, Entry], draft: Draft) -> Mapping[str, Entry]:
    """`param_init_fn` that comes out of a dict, and `sync_module_states` beside it; returns the other entries."""
    init, sync = entries["param_init_fn"], entries.get("sync_module_states")
    if sync is None and "sync_module_states" in draft.given:
        raise NotStatic("param_init_fn comes out of a dict")
    made = [origin for origin in init.values if not origin.is_none]
    if sync is None or not (_make_room(made) and _is_put_beside(init, sync)):
        draft.draws = not _make_room(made)
        draft.keeps.update(origin.node for origin in made if origin.node is not None)
        draft.unit_steps.append(_initialized(init.text, draft))
    if sync is not None and not all(o.is_none or is_named(o, "False") for o in sync.values):
        _sync_units(sync.text, draft)
    return {name: value for name, value in entries.items() if name not in TAKEN}


def _initialized(function: str, draft: Draft) -> str:
    """The call that gives a unit its values; modules that are ignored keep theirs. Raises NotStatic for parameters."""
    if draft.ignores and (draft.ignores_either or not draft.ignored_modules):
        raise NotStatic("values are given to units on meta, but not to parameters that are ignored")
    given = ["{module}", function, *filter(None, [draft.ignored_modules])]
    return f"{draft.imported(SUPPORT, 'initialize_unit')}({', '.join(given)})"


def _is_put_beside(init: Entry, sync: Entry) -> bool:
    """Whether each place that puts a `param_init_fn` into the dict puts `sync_module_states=True` there too."""
    true = [where.parent(_line(where, node)) for where, node in sync.stored if is_name(node, "True")]
    return all(any(where.parent(_line(where, node)) is block for block in true) for where, node in init.stored)


def _line(ctx: Context, node: cst.CSTNode) -> cst.CSTNode:
    return next(outer for outer in ctx.ancestors(node) if isinstance(outer, cst.SimpleStatementLine))


def translate_meta(arguments: Mapping[str, cst.BaseExpression], draft: Draft) -> Mapping[str, cst.BaseExpression]:
    """Give each unit its values before it is sharded, where the model is seen on meta or has a `param_init_fn`.

    Returns the arguments that are still to be translated.
    """
    init = arguments["param_init_fn"] if "param_init_fn" in draft.present else None
    if init is not None and _is_loaded(draft) and _only_makes_room(init, draft) and _goes(init, draft):
        init = None  # FSDP1 called it for nothing
        arguments = {name: value for name, value in arguments.items() if name != "param_init_fn"}
    if init is None and not _is_on_meta(draft.file, draft.call, draft.module, draft.built):
        if not draft.built.is_whole and _names_meta(draft.file):
            text = draft.model if draft.is_function else draft.file.code(draft.module)
            said = f"`{text}` is taken to have its values: FSDP1 initialised one on meta"
            draft.notes.append(Note(said, "check proves it"))
        return arguments
    if init is None:
        if draft.ignores:
            raise NotStatic("values are given to units on meta, but not to what is ignored")
        draft.draws = True
        draft.unit_steps.append(f"{draft.imported(SUPPORT, 'reset_unit')}({{module}}, {_device(draft)})")
    elif not (_only_makes_room(init, draft) and _is_filled_by_sync(init, arguments, draft) and _goes(init, draft)):
        draft.draws = not _only_makes_room(init, draft)
        text = draft.file.quote(init)
        if not isinstance(init, (cst.Name, cst.Attribute)):
            several = "\n" in draft.file.code(init)
            value = f"(\n    {draft.file.quote_text(*draft.file.span(init))}\n)" if several else text
            text = draft.held(value, "init_fn", "param_init_fn")
        draft.unit_steps.append(_initialized(text, draft))
    if _is_synced(arguments, draft):
        given = arguments["sync_module_states"]
        _sync_units("" if is_name(given, "True") else truth(given, draft), draft)
    return {name: value for name, value in arguments.items() if name not in TAKEN}


def _is_loaded(draft: Draft) -> bool:
    """Whether every rank loads the model by `from_pretrained`, which leaves nothing on meta without a `device_map`."""
    if _is_on_meta(draft.file, draft.call, draft.module, draft.built):
        return False
    made = [origin.node for origin in draft.file.origins(draft.module)]
    return bool(made) and all(
        isinstance(each, cst.Call)
        and is_attribute(each.func, "from_pretrained")
        and not any(argument.star == "**" or argument_name(argument) == "device_map" for argument in each.args)
        for each in made
    )


def _only_makes_room(init: cst.BaseExpression, draft: Draft) -> bool:
    """Whether a `param_init_fn` does no more than `to_empty`, which a broadcast does by itself."""
    return _make_room([origin for origin in draft.file.origins(init) if not origin.is_none])


def _make_room(made: Sequence[Origin]) -> bool:
    functions = [(o.file, o.node) for o in made if isinstance(o.node, (cst.FunctionDef, cst.Lambda))]
    if not functions or len(functions) < len(made):
        return False
    calls = [(ctx, node) for ctx, each in functions for node in ctx.inside(each.body) if isinstance(node, cst.Call)]
    return all(
        last_name(call.func) == "to_empty" or (ctx.dotted(call.func) or "") in _DEVICE_CALLS for ctx, call in calls
    )


def _is_synced(arguments: Mapping[str, cst.BaseExpression], draft: Draft) -> bool:
    given = arguments.get("sync_module_states")
    return given is not None and not all(
        origin.is_none or is_named(origin, "False") for origin in draft.file.origins(given)
    )


def _is_filled_by_sync(init: cst.BaseExpression, arguments: Mapping[str, cst.BaseExpression], draft: Draft) -> bool:
    """Whether the first rank's values come wherever room is made: `init if low_memory and rank != 0 else None`, and
    `lambda module: module.to_empty(…) if low_memory and rank != 0 else None`.
    """
    ctx, given = draft.file, arguments.get("sync_module_states")
    if given is None or all(is_named(origin, "True") for origin in ctx.origins(given)):
        return given is not None
    choice = init.body if isinstance(init, cst.Lambda) else init
    asked = conjuncts(choice.test) if isinstance(choice, cst.IfExp) and is_name(choice.orelse, "None") else []
    return any(ctx.code(each) == ctx.code(given) for each in asked)


def _goes(init: cst.BaseExpression, draft: Draft) -> bool:
    """Whether nothing is left of it: it is made in the call, for a variable, by a function inside of this one for it
    alone, or by one that other files may import.
    """
    if not isinstance(init, (cst.Name, cst.Attribute)):
        return True
    made, here = [(each.file, each.node) for each in draft.file.origins(init)], draft.file.scope(draft.call)
    functions = [(where, node) for where, node in made if isinstance(node, cst.FunctionDef)]
    if all(isinstance(where.scope(node), cst.Module) for where, node in functions):
        is_variable = isinstance(init, cst.Name) and draft.file.is_local(init.value, init)
        return bool(functions) or is_variable
    where, node = functions[0]
    if len(made) > 1 or where is not draft.file or where.scope(node) is not here or where.uses(node) != [init]:
        return False
    draft.dead.append(node)
    return True


_DEVICE_CALLS = frozenset(
    {
        *("torch.cuda.current_device", "torch.cuda.empty_cache", "torch.cuda.synchronize"),
        *("torch.device", "torch.distributed.get_rank"),
    }
)
"""What a function that makes room may call besides, and leaves nothing by."""


def _device(draft: Draft) -> str:
    if draft.device_type == "cpu":
        return '"cpu"'
    if " " in draft.file.plain(draft.device):  # it is asked of each unit
        draft.device = draft.held(draft.device, "device", "fsdp_device")
    if is_any_accelerator(draft):
        return draft.device or f"{draft.imported('torch')}.get_device_module().current_device()"
    return draft.device or f"{draft.imported('torch')}.cuda.current_device()"


def _sync_units(test: str, draft: Draft) -> None:
    """All ranks start from the first one's values, if the test holds: unit by unit, since none is whole before."""
    if draft.group is None and not draft.mesh:
        raise NotStatic("sync_module_states over more than one group, of a model on the meta device")
    group = one_group(draft, draft.before) if draft.group else draft.fresh("group", "mesh_group") if draft.mesh else ""
    function = draft.imported(SUPPORT, "broadcast_unit")
    left_out = f"ignored_params={draft.ignored}" if draft.ignores else ""
    lines = [f"{function}({', '.join(filter(None, ['{module}', _device(draft), group, left_out]))})"]
    if draft.mesh:
        lines = [f"for {group} in {groups_of_mesh(draft, draft.before)}:", f"    {lines[0]}"]
    if test:
        lines = [f"if {test}:", *("    " + line for line in lines)]
    draft.unit_steps.append("\n".join(lines))


def _names_meta(ctx: Context) -> bool:
    return any(True for where in (ctx, *others(ctx, "meta")) for _ in _sites(where)) or any(
        _is_empty(node) for where in (ctx, *others(ctx, _EMPTY)) for node in where.nodes(cst.Name)
    )


def _is_on_meta(ctx: Context, wrap: cst.Call, module: cst.BaseExpression, made: Makeup) -> bool:
    """Whether the program is seen to make this model on the meta device, or to move it there."""
    if any(_is_made_on_meta(where, call, ctx.scope(wrap), _CALLS) for where, call in made.made):
        return True
    classes = {owner for _, owner in made.classes}
    for where in (ctx, *others(ctx, "meta")):
        for site in _sites(where):
            if last_name(site.func) == "set_default_device" or classes & set(where.ancestors(site)):
                return True
            if last_name(site.func) in {"to", "to_empty"} and _moves(where, site, ctx, module, made):
                return True
    return False


def _sites(ctx: Context) -> list[cst.Call]:
    """The calls that name the meta device: `.to("meta")`, `torch.device("meta")`, `Net(device="meta")`."""
    found = []
    for node in ctx.nodes(cst.SimpleString):
        argument, call = ctx.parent(node), call_given(node, ctx)
        if node.raw_value == "meta" and isinstance(argument, cst.Arg) and call is not None:
            named = argument.keyword.value if argument.keyword is not None else ""
            if named == "device" or last_name(call.func) in _DEVICES:
                found.append(call)
    return found


def _is_made_on_meta(ctx: Context, call: cst.Call, wrapping: cst.CSTNode, depth: int) -> bool:
    """Whether a call is told so, or runs inside of a `with` that says so, in its function or one that calls it.

    Where the function of the wrap calls it, other callers make other models.
    """
    if any(_says_meta(ctx, argument.value) for argument in call.args):
        return True
    for node in ctx.ancestors(call):
        if isinstance(node, cst.With) and any(_says_meta(ctx, item.item) for item in node.items):
            return not _is_filled(ctx, call, node)
    callers = [(where, caller) for where, caller in ctx.callers(call) if caller is not call] if depth > 0 else []
    own = [(where, caller) for where, caller in callers if where.scope(caller) is wrapping]
    return any(_is_made_on_meta(where, caller, wrapping, depth - 1) for where, caller in own or callers)


def _is_filled(ctx: Context, made: cst.Call, block: cst.With) -> bool:
    """Whether every rank gives the model its values behind the `with` that makes it: `from_pretrained` does."""
    holder = ctx.parent(made)
    targets = [each.target for each in holder.targets] if isinstance(holder, cst.Assign) else []
    if len(targets) != 1:
        return False
    name, end = ctx.code(targets[0]), ctx.span(block)[1]
    behind = [call for call in ctx.calls(ctx.scope(block)) if ctx.span(call)[0] >= end and _fills(ctx, call, name)]
    return any(not is_on_one_rank(call, ctx) and _is_on_every_way(ctx, call, block, behind) for call in behind)


def _is_on_every_way(ctx: Context, call: cst.Call, block: cst.With, others: list[cst.Call]) -> bool:
    """Whether the other branch of each condition around a call has one of the others, too."""
    for inner, outer in upward(ctx, call):
        if contains(ctx, outer, block):
            return True
        if isinstance(outer, cst.If):
            other = outer.orelse if inner is outer.body else outer.body
            if other is None or not any(contains(ctx, other, each) for each in others):
                return False
    return True


def _fills(ctx: Context, call: cst.Call, model: str) -> bool:
    if last_name(call.func) in _FILLING:
        return any(ctx.code(argument.value) == model for argument in call.args[:1])
    if not isinstance(call.func, cst.Attribute) or ctx.code(call.func.value) != model:
        return False
    named = (argument for argument in call.args if argument.keyword is not None)
    assigns = any(each.keyword.value == "assign" and is_name(each.value, "True") for each in named if each.keyword)
    return call.func.attr.value == "load_state_dict" and assigns


def _says_meta(ctx: Context, node: cst.BaseExpression) -> bool:
    """Whether an expression is, or can come from, the meta device or `init_empty_weights`, as `device(name)` can."""
    if _holds_meta(ctx, node):
        return True
    asked = [node, node.func, *(arg.value for arg in node.args)] if isinstance(node, cst.Call) else [node]
    return any(
        origin.node is not None
        and not isinstance(origin.node, cst.BaseCompoundStatement)
        and _holds_meta(origin.file, origin.node)
        for each in asked
        if isinstance(each, (cst.Name, cst.Attribute, cst.Call))
        for origin in ctx.origins(each)
    )


def _holds_meta(ctx: Context, node: cst.CSTNode) -> bool:
    return any(
        _is_empty(inner) or (isinstance(inner, cst.SimpleString) and inner.raw_value == "meta")
        for inner in ctx.inside(node)
    )


def _is_empty(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Name) and node.value == _EMPTY


def _moves(where: Context, site: cst.Call, ctx: Context, module: cst.BaseExpression, made: Makeup) -> bool:
    """Whether `X.to("meta")` moves the model: the same object, or the same name in the same function."""
    moved = cst.ensure_type(site.func, cst.Attribute).value if isinstance(site.func, cst.Attribute) else None
    if moved is None:
        return False
    calls = [call for _, call in made.made]
    if any(origin.node in calls for origin in where.origins(moved)):
        return True
    return where.path == ctx.path and where.scope(site) is ctx.scope(module) and base(moved) == base(module)
