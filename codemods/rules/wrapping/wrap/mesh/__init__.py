"""`device_mesh` and the strategies that are a mesh: over which ranks parameters are sharded.

FSDP2 reads any mesh of two dimensions as (replicate, shard). FSDP1 did so for the hybrid strategies alone; with the
others it sharded over the first dimension. Passed on as it is, such a mesh would silently shard over other ranks, or,
where the second dimension has one, not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Level, NotStatic, Origin
from codemods.reading.code.enclosing import bound_once, enclosing
from codemods.reading.code.shapes import alone
from codemods.reading.code.words import last_name
from codemods.reading.edits.layout import lines_below

from ..draft import Draft, Note, Value
from ..places.in_place import is_before_group
from ..strategy.names import Strategy
from ..tensors.placement import distributed
from . import own_meshes
from .groups import from_group, is_one_of, of_one_group, one_group, under_keys
from .hybrid_only import HYBRID, is_for_hybrids
from .of_branch import put_into_dict
from .own_meshes import NAMES, make
from .ranks import CUDA, Ranks, another_type, device_type, ranks_of
from .shape import dimensions, is_by_shape, is_made_beside_each, is_of_hybrids, ranks_of_shards

_APART = "FSDP1 did not average the gradients of shard groups of one rank each, FSDP2 does"
_COMPARE_LOSSES = "expect other losses, those of data parallelism"


def given_ranks(arguments: Mapping[str, Value], draft: Draft) -> Ranks | None:
    """The group or the mesh that the call is given; None where it is given neither. Raises NotStatic."""
    mesh, group = (ranks_of(name, arguments.get(name), draft) for name in ("device_mesh", "process_group"))
    if mesh is not None and mesh.may_be_none and group is not None:
        return replace(mesh, instead=group)
    return mesh or group


def translate_mesh(ranks: Ranks | None, strategy: Strategy, draft: Draft) -> None:
    """Set `mesh`, and the group that `sync_module_states` broadcasts in; raise NotStatic for what is not seen."""
    if strategy.names and strategy.names <= HYBRID and ranks is not None:
        shards = {ranks_of_shards(each) for each in ranks.origins}
        if 1 in shards:
            draft.notes.append(Note(_APART, _COMPARE_LOSSES))
        elif None in shards:
            draft.notes.append(Note(_APART, level=Level.REWRITTEN))
    if strategy.has_mesh:
        if strategy.mesh:
            draft.common_kwargs["mesh"] = strategy.mesh
    elif ranks is not None and ranks.argument == "device_mesh":
        draft.common_kwargs["mesh"] = _from_mesh(ranks, strategy, draft)
        put_into_dict(ranks, strategy, draft)
    elif ranks is not None:
        from_group(ranks, strategy, draft)
    elif strategy.meshes:
        if "auto_wrap_policy" not in draft.given and strategy.known in HYBRID:
            raise NotStatic(
                f"sharding_strategy {strategy.known} without a policy, a group or a mesh, which FSDP1 refuses"
            )
        _for_strategy(strategy, draft)
    elif draft.device_type == "cpu":
        made = f'{make(draft)}("cpu", ({distributed(draft)}.get_world_size(),))'
        draft.common_kwargs["mesh"] = draft.held(made, "cpu_mesh", "fsdp_mesh")


def _for_strategy(strategy: Strategy, draft: Draft) -> None:
    """A mesh that FSDP1 made by itself."""
    if draft.device_type == "cpu":
        raise NotStatic("a strategy with a mesh of its own, on the CPU")
    if strategy.known is not None or strategy.names <= HYBRID:
        draft.common_kwargs["mesh"] = name = draft.fresh("mesh", "fsdp_mesh")
        draft.before.append(own_meshes.statements(name, min(strategy.names), draft))
    else:
        _by_key(strategy, draft)


def _by_key(strategy: Strategy, draft: Draft) -> None:
    """The mesh of some of the strategies that a key stands for, in the dict that they stand for where that is made."""
    line = _line_of_choice(strategy, draft)
    if line is not None or (strategy.is_own and draft.is_alone):
        name, lines = f'{strategy.kwargs}["mesh"]', []
    else:
        draft.common_kwargs["mesh"] = name = draft.fresh("mesh", "fsdp_mesh")
        lines = [f"{name} = None"]
    hybrid, whole = (
        [key for key, meant in strategy.keys.items() if meant in kind] for kind in (HYBRID, strategy.meshes - HYBRID)
    )
    if hybrid and whole:
        made = own_meshes.of_either(name, is_one_of(strategy, whole), draft, "    ")
    else:
        made = own_meshes.statements(name, strategy.keys[(hybrid or whole)[0]], draft, "    ")
    lines += under_keys(strategy, [*hybrid, *whole], made.split("\n"))
    if line is not None:
        draft.edits.append((draft.file, lines_below(draft.file, line, lines)))
    else:
        draft.before.append("\n".join(lines))


def _line_of_choice(strategy: Strategy, draft: Draft) -> cst.SimpleStatementLine | None:
    """The line of `strategy = {…}[key]`, of which several calls of a function take the dict: one mesh for all."""
    ctx, name = draft.file, strategy.value
    if draft.is_alone or draft.before or not isinstance(name, cst.Name) or not strategy.kwargs.isidentifier():
        return None
    if not strategy.is_own or is_before_group(ctx, name, draft.call) or _has_ranks(ctx, draft.call):
        return None
    made = bound_once(ctx, name)
    line = enclosing(ctx, made, cst.SimpleStatementLine) if made is not None else None
    is_here = line is not None and ctx.scope(line) is ctx.scope(draft.call)
    return line if is_here and isinstance(alone(line), cst.Assign) else None


_RANKS = frozenset({"device_mesh", "process_group"})


def _has_ranks(ctx: Context, call: cst.Call) -> bool:
    """Whether the function gives a call a mesh or a group, or sets the device, which a mesh has to come after."""
    inside = ctx.inside(ctx.scope(call))
    named = {node.keyword.value for node in inside if isinstance(node, cst.Arg) and node.keyword is not None}
    named |= {str(node.raw_value) for node in inside if isinstance(node, cst.SimpleString)}
    calls = (node for node in inside if isinstance(node, cst.Call))
    return not named.isdisjoint(_RANKS) or any(last_name(each.func) == "set_device" for each in calls)


def _from_mesh(ranks: Ranks, strategy: Strategy, draft: Draft) -> str:
    """A mesh that is seen to have one dimension, or two with names; of others, what run time says is asked."""
    if strategy.known == "NO_SHARD" and ranks.instead is None:
        return _of_replicas(ranks, draft)
    origins = [origin for origin in ranks.origins if not origin.is_none]
    seen = {dimensions(origin) for origin in origins}
    names = seen.pop() if len(seen) == 1 else ()
    if len(names) == 2 and not any(names) and strategy.names & HYBRID:
        _name_dimensions(origins, draft)
        names = ("replicate", "shard")
    if len(names) == 2 and not all(names):
        raise NotStatic("device_mesh has two dimensions without names")
    if any(len(each) == 2 and not all(each) for each in seen):
        raise NotStatic("device_mesh has two dimensions without names")
    if len(names) not in (1, 2) or ranks.may_be_none:
        return _from_any_mesh(ranks, strategy, draft)
    if len(names) == 2 and strategy.names & HYBRID and not strategy.names <= HYBRID:
        return _from_any_mesh(ranks, strategy, draft)
    if strategy.meshes and (len(names) == 1 or not strategy.names <= HYBRID):
        if strategy.name:
            return _from_any_mesh(ranks, strategy, draft)
        raise NotStatic(f"sharding_strategy {', '.join(sorted(strategy.meshes))} with a device_mesh of another shape")
    text = ranks.text
    if ranks.is_made and ("auto_wrap_policy" in draft.given or len(names) == 2):
        text = draft.held(text, "mesh", "fsdp_mesh")
    sliced = any(isinstance(origin.node, cst.Subscript) for origin in origins)
    if strategy.names <= HYBRID:
        if sliced and not text.isidentifier() and "sync_module_states" in draft.given:  # it is said more than once
            text = draft.held(ranks.text, "mesh", "fsdp_mesh")
        # A mesh that is made covers all ranks, so that a broadcast to all covers both of its dimensions.
        draft.group, draft.mesh = (None, text) if sliced else ("", "")
        return text
    if len(names) == 2:
        draft.notes.append(Note(f"device_mesh has two dimensions: FSDP1 sharded over the first, {names[0]}, alone"))
        text = f'{text}["{names[0]}"]'
    if sliced or len(names) == 2:
        draft.group = f"{text}.get_group()"
    return text


def _of_replicas(ranks: Ranks, draft: Draft) -> str:
    """The first dimension of any mesh, over which NO_SHARD held replicas; all ranks where it is None."""
    mesh = ranks.held(draft, "device_mesh", "fsdp_device_mesh")
    device, draft.group = f"{mesh}.device_type", f"{mesh}.get_group(0)"
    if ranks.may_be_none:
        group = draft.held(f"{draft.group} if {mesh} is not None else None", "group", "fsdp_group")
        device, draft.group = another_type(draft) or CUDA, group
    name, function = draft.fresh("mesh", "fsdp_mesh"), draft.imported(SUPPORT, "replicate_mesh")
    draft.before.append(draft.assigned(name, function, [device, draft.group]))
    return name


def _name_dimensions(origins: Sequence[Origin], draft: Draft) -> None:
    """`fully_shard` asks for names of two dimensions."""
    for origin in origins:
        call = cst.ensure_type(origin.node, cst.Call)
        ctx, added = origin.file, f", mesh_dim_names={NAMES}"
        start, end = ctx.span(call.args[0])[0], ctx.span(call.args[-1].value)[1]
        moves = ctx.path == draft.file.path and any(outer is draft.call for outer in ctx.ancestors(call))
        first, last = ctx.whole_lines(draft.call if moves else call)
        line = ctx.text[first:last].rstrip()
        if moves:  # to a line of its own, above the loop
            line = f"{line[: len(line) - len(line.lstrip())]}mesh = {ctx.code(call)}"
        if len(line.splitlines()) == 1 and len(line) + len(added) > ctx.width:
            indent = ctx.newline + line[: len(line) - len(line.lstrip())]
            draft.edits.append((ctx, Edit(start, start, indent + ctx.indent)))
            added += indent
        draft.edits.append((ctx, Edit(end, end, added)))
        draft.definitions.add(call)
        draft.keeps.discard(call)  # what reads it reads the same mesh


def _from_either(name: str, which: str, ranks: Ranks, group: Ranks, draft: Draft) -> None:
    """The mesh of a strategy that may be given a mesh, or a group, or neither, as run time knows."""
    mesh, device = ranks.held(draft, "device_mesh", "fsdp_device_mesh"), device_type(draft)
    of_mesh, of_group = (draft.imported(SUPPORT, each) for each in ("strategy_mesh", "mesh_of_group"))
    lines = [
        f"if {mesh} is not None:",
        f"    {name} = {of_mesh}({which}, {mesh})",
        "else:",
        f"    {name} = {of_group}({which}, {one_group(group, draft)}, {device})",
    ]
    draft.before.append("\n".join(lines))
    draft.mesh, draft.mesh_is_optional, draft.group = name, True, None


def _from_any_mesh(ranks: Ranks, strategy: Strategy, draft: Draft) -> str:
    """A mesh whose dimensions only run time knows, if there is one."""
    is_as_needed = strategy.names <= HYBRID or is_by_shape(ranks, strategy)
    if (is_as_needed or is_made_beside_each(ranks, strategy, draft)) and not ranks.may_be_none:
        draft.mesh, draft.group = ranks.held(draft, "mesh", "fsdp_mesh"), None
        return draft.mesh
    seen = [origin for origin in ranks.origins if not origin.is_none]
    if is_of_hybrids(ranks, strategy, draft):
        draft.mesh, draft.mesh_is_optional, draft.group = ranks.text, ranks.may_be_none, None
        return ranks.text
    name = draft.fresh("mesh", "fsdp_mesh")
    if strategy.meshes:
        if not strategy.name and strategy.known is None:
            raise NotStatic("device_mesh is not seen, and the strategy is one of several")
        which, other = strategy.name or f'"{strategy.known}"', another_type(draft)
        arguments = [which, ranks.text]
        if strategy.value is not None and is_for_hybrids(seen, strategy.value, draft):
            of_name = draft.imported(SUPPORT, "strategy_mesh" if ranks.instead is None else "mesh_of_group")
            text = ranks.text
            if ranks.is_made:
                draft.before.append(f"{name} = {text}")
                text = name
            function, arguments = f"{text} or {of_name}", [which]
            if ranks.instead is not None:
                group, device = one_group(ranks.instead, draft), device_type(draft)
                arguments += [group, device]
            elif other:
                arguments += [f"device_type={other}"]
        elif ranks.instead is not None:
            _from_either(name, which, ranks, ranks.instead, draft)
            return name
        else:
            function = draft.imported(SUPPORT, "strategy_mesh" if "NO_SHARD" in strategy.names else "sharding_mesh")
            arguments += [other] if other and ranks.may_be_none else []
    else:
        function, arguments = draft.imported(SUPPORT, "first_dimension"), [ranks.text]
    draft.before.append(draft.assigned(name, function, arguments))
    if ranks.instead is not None and not strategy.meshes:
        group = one_group(ranks.instead, draft)
        line = f"{name} = {of_one_group(group, device_type(draft), draft)}"
        draft.before.append(f"if {group} is not None:\n    {line}" if ranks.instead.may_be_none else line)
    draft.mesh, draft.mesh_is_optional, draft.group = name, ranks.may_be_none, None
    return name
