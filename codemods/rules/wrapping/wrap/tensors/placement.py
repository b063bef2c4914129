"""Where parameters are kept, and the values that they start from."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from codemods.api import Context, Edit, Import, NotStatic, Origin
from codemods.reading.code.enclosing import bound_once
from codemods.reading.code.words import is_name
from codemods.reading.processes.cpu_backend import backend_edits
from codemods.reading.values.choices import Option, options, written
from codemods.reading.wraps.manual import is_factory
from codemods.reading.wraps.parts import (
    are_units_apart,
    is_called_again,
    is_for_parts_and_all,
    root_around,
    wraps_parts,
)
from codemods.tables.names import PACKAGE

from ..draft import Draft, Entry, Note, Switch, Value
from ..places.in_place import chosen_for, is_for_constructors, rename, renamed
from .device import is_on_gpu, is_there


def translate_offload(value: cst.BaseExpression, draft: Draft) -> None:
    """`CPUOffload(offload_params=…)`; `CPUOffloadPolicy()` pins memory, as FSDP1 does."""
    origins = draft.file.origins(value)
    if all(origin.is_none for origin in origins):
        return
    choice = (bound_once(draft.file, value) if len(origins) > 1 else None) or value
    if isinstance(choice, cst.IfExp) and draft.file.same_meaning(choice, draft.call):
        switch_offload(Switch(choice.test, choice.body, choice.orelse), draft)
        return
    if _offload_in_place(value, draft):
        _compute_on_cpu(draft)
        return
    call = origins[0].node if len(origins) == 1 else None
    flag = _flag(origins[0].file, call) if isinstance(call, cst.Call) else None
    if flag == "False":
        return
    if flag == "True":
        draft.common_kwargs["offload_policy"] = f"{draft.imported(PACKAGE, 'CPUOffloadPolicy')}()"
        _compute_on_cpu(draft)
    elif flag is not None and call is value:
        offloaded, kept = draft.imported(PACKAGE, "CPUOffloadPolicy"), draft.imported(PACKAGE, "OffloadPolicy")
        draft.common_kwargs["offload_policy"] = f"{offloaded}() if {flag} else {kept}()"
        _compute_on_cpu(draft)
    else:
        draft.keeps.update(origin.node for origin in origins if origin.node is not None and not origin.is_none)
        offload_at_run_time(_named(value, draft), draft)


def _named(value: cst.BaseExpression, draft: Draft) -> str:
    """What a value is read by twice: the name that it gets, if it has none."""
    if isinstance(value, (cst.Name, cst.Attribute)):
        return draft.file.quote(value)
    text = draft.file.quote(value) if isinstance(value, (cst.Call, cst.Subscript)) else written(draft.file, value, {})
    return draft.held(text, "cpu_offload", "fsdp_cpu_offload")


def _offload_in_place(value: cst.BaseExpression, draft: Draft) -> bool:
    """Whether a variable takes its policies where it took its `CPUOffload`s: nothing but constructor calls reads it."""
    ctx = draft.file
    if not isinstance(value, cst.Name):
        return False
    try:
        found = options(ctx, value, lambda where, node: _flag(where, node) is not None)
    except NotStatic:
        return False
    if not all(o.file.path == ctx.path and is_for_constructors(o, value, "cpu_offload") for o in found):
        return False
    flags = {_flag(ctx, option.node) for option in found}
    if len(flags) == 1 and flags <= {"True", "False"}:
        return False  # one value, which needs no variable
    _write_policies(found, draft)
    draft.common_kwargs["offload_policy"] = renamed(value, found, draft, "cpu_offload", ("offload_policy",))
    return True


def _stored_in_place(value: Entry, draft: Draft) -> bool:
    """Whether a dict that goes on to `fully_shard` holds policies where it held `CPUOffload`s, in another file too."""
    if not value.is_only_given or value.may_lack or not draft.goes_on or len(value.stored) != 1:
        return False
    ((where, source),) = value.stored
    found = chosen_for(where, source, lambda file, node: _flag(file, node) is not None)
    if found is None or ({option.node for option in found.values} | value.displays) & draft.left:
        return False
    _write_policies(found.values, draft)
    rename(where, found, draft, ("offload_policy", "fsdp_offload_policy"))
    draft.keeps -= {option.node for option in found.values}
    return True


def _write_policies(found: Sequence[Option], draft: Draft) -> None:
    """A policy in the place of each `CPUOffload(…)`, or None."""
    for option in found:
        ctx = option.file
        offloaded, kept = (
            draft.imported_at(ctx, option.node, Import(PACKAGE, name)) for name in ("CPUOffloadPolicy", "OffloadPolicy")
        )
        known = {"True": f"{offloaded}()", "False": f"{kept}()"}
        flag = _flag(ctx, option.node) or ""
        text = known.get(flag, f"{offloaded}() if {flag} else {kept}()")
        draft.definitions.add(option.node)
        draft.edits.append((ctx, Edit(*ctx.span(option.node), text)))


def _flag(ctx: Context, node: cst.BaseExpression) -> str | None:
    """The text of what decides whether `CPUOffload(…)`, or None, offloads; None for anything else."""
    if is_name(node, "None"):
        return "False"
    if not isinstance(node, cst.Call) or ctx.fsdp1(node.func) != "CPUOffload":
        return None
    if not node.args or is_name(node.args[0].value, "False"):
        return "False"
    flag = node.args[0]
    if flag.star:
        return None
    return "True" if is_name(flag.value, "True") else ctx.quote(flag.value)


_ON_THE_CPU = "cpu_offload: whole parameters, and norms that the program computes itself, are computed on CPU tensors"


def _compute_on_cpu(draft: Draft) -> None:
    """Norms and whole values of offloaded parameters, and what a scaler finds in their gradients, need groups that take
    CPU tensors; FSDP1 moved them first.
    """
    edits = backend_edits(draft.file)
    if edits is None or not draft.file.mentions("clip_grad_norm_", "get_total_norm", "ShardedGradScaler"):
        where = "where it gathers state dicts or such norms, or scales a loss"
        hint = f'{where}, give the process group a CPU backend: init_process_group("cpu:gloo,cuda:nccl")'
        draft.notes.append(Note(_ON_THE_CPU, hint))
    elif edits:
        draft.edits += edits
        draft.notes.append(Note(f"{_ON_THE_CPU}, for which the process group gets gloo beside NCCL"))


def offload_of_entry(value: Entry, draft: Draft) -> None:
    """`cpu_offload` that comes out of a dict."""
    if all(origin.is_none for origin in value.values):
        return
    if _stored_in_place(value, draft):
        draft.common_kwargs["offload_policy"] = value.text
        _compute_on_cpu(draft)
        return
    offload_at_run_time(draft.held(value.text, "cpu_offload", "fsdp_cpu_offload"), draft)


def sync_of_entry(value: Entry, draft: Draft) -> None:
    """`sync_module_states` that comes out of a dict."""
    if not all(is_named(origin, "False") or origin.is_none for origin in value.values):
        _synchronise(value.text, draft)


def offload_at_run_time(text: str, draft: Draft) -> None:
    """A `CPUOffload`, or None, that only run time knows."""
    offloaded, kept = draft.imported(PACKAGE, "CPUOffloadPolicy"), draft.imported(PACKAGE, "OffloadPolicy")
    policy = f"{offloaded}() if {text} and {text}.offload_params else {kept}()"
    draft.common_kwargs["offload_policy"] = draft.held(policy, "offload_policy", "fsdp_offload_policy")
    _compute_on_cpu(draft)


def switch_offload(value: Switch, draft: Draft) -> None:
    """`cpu_offload` that a condition decides about."""
    chosen = [part for part in (value.body, value.orelse) if part is None or isinstance(part, cst.BaseExpression)]
    if len(chosen) < 2:
        raise NotStatic("cpu_offload is one of several values")
    sides = [_offload_alone(part, draft) for part in chosen]
    draft.keeps.update(*(own.keeps for own in sides))
    if any(own.before for own in sides):  # what only run time knows takes statements
        yes, no = (_grouped(part, draft) if part is not None else "None" for part in chosen)
        text = f"{yes} if {condition(value, draft)} else {no}"
        offload_at_run_time(draft.held(text, "cpu_offload", "fsdp_cpu_offload"), draft)
        return
    draft.imports.update(*(own.imports for own in sides))
    draft.definitions.update(*(own.definitions for own in sides))
    draft.edits += (edit for own in sides for edit in own.edits)
    texts = [own.common_kwargs.get("offload_policy", "") for own in sides]
    if texts == ["", ""]:
        return
    none = f"{draft.imported(PACKAGE, 'OffloadPolicy')}()" if "" in texts else ""
    yes, no = (text or none for text in texts)
    flag = _flag_of(value.body, draft)
    if flag is not None:
        yes = f"{draft.imported(PACKAGE, 'CPUOffloadPolicy')}()" if no == none else f"({yes})"
    test = _both(value.test, flag, draft) if flag is not None and no == none else condition(value, draft)
    draft.common_kwargs["offload_policy"] = f"{yes} if {test} else {no}"
    _compute_on_cpu(draft)


def _offload_alone(part: cst.BaseExpression | None, draft: Draft) -> Draft:
    """What one side of a choice becomes, by itself."""
    own = Draft(draft.file, draft.call, draft.module, draft.model)
    if part is not None:
        translate_offload(part, own)
    return own


def _flag_of(part: Value | None, draft: Draft) -> cst.BaseExpression | None:
    """`offload` of `CPUOffload(offload_params=offload)`, where it is no literal."""
    if not isinstance(part, cst.Call) or draft.file.fsdp1(part.func) != "CPUOffload" or not part.args:
        return None
    flag = part.args[0].value
    return None if is_name(flag, "True") or is_name(flag, "False") else flag


def _both(test: cst.BaseExpression, flag: cst.BaseExpression, draft: Draft) -> str:
    """The text of two conditions that hold together, or of one where they are the same."""
    if draft.file.code(test) == draft.file.code(flag):
        return written(draft.file, test, {})
    is_or = [isinstance(each, cst.BooleanOperation) and isinstance(each.operator, cst.Or) for each in (test, flag)]
    return " and ".join(_grouped(each, draft, or_too) for each, or_too in zip((test, flag), is_or, strict=True))


def _grouped(node: cst.BaseExpression, draft: Draft, is_loose: bool = False) -> str:
    """The text of a part of a longer expression, in brackets where it binds more loosely."""
    text = written(draft.file, node, {})
    is_loose = is_loose or isinstance(node, (cst.IfExp, cst.Lambda, cst.NamedExpr))
    return f"({text})" if is_loose and not node.lpar else text


def condition(value: Switch, draft: Draft) -> str:
    """The text of what decides, on one line."""
    return written(draft.file, value.test, {})


def switch_sync(value: Switch, draft: Draft) -> None:
    """`sync_module_states` that a condition decides about."""
    test = condition(value, draft)
    literals = [part is not None and isinstance(part, cst.Name) and part.value for part in (value.body, value.orelse)]
    if literals == ["True", False] or literals == ["True", "False"]:
        _synchronise(test, draft)
    elif literals == [False, "True"] or literals == ["False", "True"]:
        _synchronise(f"not ({test})", draft)
    else:
        raise NotStatic("sync_module_states is given under a condition")


def translate_sync(value: cst.BaseExpression, draft: Draft) -> None:
    """`sync_module_states`: all ranks start from the first one's values, broadcast before sharding."""
    if all(is_named(origin, "False") or origin.is_none for origin in draft.file.origins(value)):
        return
    condition = "" if is_name(value, "True") else truth(value, draft)
    if "\n" in draft.file.plain(condition):
        raise NotStatic("sync_module_states is an expression of several lines")
    _synchronise(condition, draft)


def truth(value: cst.BaseExpression, draft: Draft) -> str:
    """The text of what decides: `ranks > 1` of `True if ranks > 1 else False`."""
    if isinstance(value, cst.IfExp) and is_name(value.body, "True") and is_name(value.orelse, "False"):
        value = value.test
    return draft.file.quote_text(*draft.file.bare_span(value))


def _synchronise(condition: str, draft: Draft) -> None:
    """Broadcast the first rank's values, where the condition holds, if there is one."""
    if draft.group is None and not draft.mesh:
        raise NotStatic("sync_module_states over more than one group")
    dist = distributed(draft)
    # FSDP1 moved a unit, and then sharded it: there may be no room for the whole model on the device.
    has_parts = "auto_wrap_policy" not in draft.present and _may_have_sharded_parts(draft)
    in_units = has_parts or (draft.has_root and "auto_wrap_policy" in draft.present)
    is_moved_in_parts = bool(draft.device) and in_units and not is_on_gpu(draft)
    if is_moved_in_parts and " " in draft.file.plain(draft.device):  # it is asked of each tensor
        draft.device = draft.held(draft.device, "device", "fsdp_device")
    # What is ignored stays where it is.
    is_moved = bool(draft.device) and not draft.ignored and not is_moved_in_parts and not is_there(draft)
    lines = [f"{draft.model}.to({draft.device})"] if is_moved else []
    source = "src=0"
    if draft.group:
        group = one_group(draft, lines)
        source = f"group={group}, group_src=0"
    tensor = draft.fresh("tensor", "state")
    sent = draft.fresh("on_device", "tensor_on_device") if is_moved_in_parts else f"{tensor}.detach()"
    loop = [
        f"for {tensor} in (*{draft.model}.parameters(), *{draft.model}.buffers()):",
        f"    {dist}.broadcast({sent}, {source})",
    ]
    if draft.mesh:
        # Across the replicas first, so that each group of shards then starts from the right values.
        group, groups = draft.fresh("group", "mesh_group"), groups_of_mesh(draft, lines)
        loop[1:] = [
            f"    for {group} in {groups}:",
            f"        {dist}.broadcast({sent}, group={group}, group_src=0)",
        ]
    if is_moved_in_parts:
        there, back = f"{sent} = {tensor}.data.to({draft.device})", f"{tensor}.data.copy_({sent})"
        loop[1:] = [f"    {there}", *loop[1:], f"    {back}"]
    if draft.ignored:
        if draft.mesh:
            raise NotStatic("sync_module_states over a mesh that is not seen, with something ignored")
        moved = [f"        {tensor}.data = {tensor}.data.to({draft.device})"]
        moved = moved if draft.device and not is_moved_in_parts else []
        loop[1:] = [f"    if {tensor} not in {draft.ignored}:", *moved, *(f"    {line}" for line in loop[1:])]
    if has_parts:  # each of which took its values when it was sharded, if it was told to
        sharded = f"    if not isinstance({tensor}, {draft.imported('torch.distributed.tensor', 'DTensor')}):"
        loop[1:] = [sharded, *("    " + line for line in loop[1:])]
    lines += loop
    if condition:
        lines = [f"if {condition}:", *("    " + line for line in lines)]
    draft.before.append("\n".join(lines))


def _may_have_sharded_parts(draft: Draft) -> bool:
    """Whether parts of the model are wrapped by hand before the model itself is."""
    ctx = draft.file
    if draft.is_context:
        return True
    if are_units_apart(ctx, draft.call):
        return False
    if is_factory(ctx, draft.call) and is_for_parts_and_all(ctx, draft.call):
        return True
    if is_called_again(ctx, draft.call) and root_around(ctx, draft.call) is None and wraps_parts(ctx, draft.call):
        return True
    calls = ctx.wrapping.calls(ctx.path)
    return any(other is not draft.call and wraps_parts(where, other) for where, other in calls)


def groups_of_mesh(draft: Draft, lines: list[str]) -> str:
    """The groups of a mesh, one a dimension; where there may be no mesh, they get a name above."""
    groups = f"{draft.mesh}.get_all_groups()"
    if not draft.mesh_is_optional:
        return groups
    name = draft.fresh("groups", "mesh_groups")
    lines.append(f"{name} = {groups} if {draft.mesh} is not None else [None]")
    return name


def one_group(draft: Draft, lines: list[str]) -> str:
    """The name of the group that starts from equal values; where it has none, it gets one above."""
    group = draft.group or ""
    if draft.file.plain(group).isidentifier():
        return group
    name = draft.fresh("group", "shard_group")
    lines.append(f"{name} = {group}")
    return name


def distributed(draft: Draft) -> str:
    return draft.imported("torch.distributed", alias="dist")


def is_named(origin: Origin, name: str) -> bool:
    return isinstance(origin.node, cst.Name) and origin.node.value == name
