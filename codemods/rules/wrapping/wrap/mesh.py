"""`process_group`, `device_mesh` and the strategies that are a mesh: over which ranks parameters are sharded.

FSDP2 reads any mesh of two dimensions as (replicate, shard). FSDP1 did so for the hybrid strategies alone; with the
others it sharded over the first dimension. Passed on as it is, such a mesh would silently shard over other ranks, or,
where the second dimension has one, not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst

from codemods.api import SUPPORT, Edit, NotStatic, Origin
from codemods.reading.process_groups import is_world

from .draft import Draft, Note
from .placement import distributed
from .strategy import HYBRID, Strategy

_NAMES = '("replicate", "shard")'


def gives_ranks(arguments: Mapping[str, cst.BaseExpression], draft: Draft) -> bool:
    """Whether the call says over which ranks it shards."""
    return any(_given(arguments.get(name), draft) is not None for name in ("device_mesh", "process_group"))


def translate_mesh(arguments: Mapping[str, cst.BaseExpression], strategy: Strategy, draft: Draft) -> None:
    """Set `mesh`, and the group that `sync_module_states` broadcasts in; raise NotStatic for what is not seen."""
    mesh, group = (_given(arguments.get(name), draft) for name in ("device_mesh", "process_group"))
    if mesh is not None:
        draft.common_kwargs["mesh"] = _from_mesh(mesh, strategy, draft, "auto_wrap_policy" in arguments)
    elif group is not None:
        _from_group(group, strategy, draft)
    elif strategy.has_mesh:
        return
    elif strategy.meshes:
        if "auto_wrap_policy" not in arguments and strategy.known in HYBRID:
            raise NotStatic(
                f"sharding_strategy {strategy.known} without a policy, a group or a mesh, which FSDP1 refuses"
            )
        _for_strategy(strategy, draft)
    elif draft.device_type == "cpu":
        draft.common_kwargs["mesh"] = name = draft.fresh("cpu_mesh", "fsdp_mesh")
        draft.before.append(f'{name} = {_make(draft)}("cpu", ({distributed(draft)}.get_world_size(),))')


def _given(value: cst.BaseExpression | None, draft: Draft) -> cst.BaseExpression | None:
    if value is None or all(origin.is_none for origin in draft.file.origins(value)):
        return None
    return value


def _device_type(draft: Draft, what: str) -> str:
    """The kind of device that a mesh is made for: CUDA where the program speaks of it."""
    if draft.device_type:
        return draft.device_type
    if not draft.file.mentions("cuda"):
        raise NotStatic(f"{what}, on a device that is not seen")
    return "cuda"


def _for_strategy(strategy: Strategy, draft: Draft) -> None:
    """A mesh that FSDP1 made by itself."""
    if _device_type(draft, f"sharding_strategy {', '.join(sorted(strategy.meshes))}") != "cuda":
        raise NotStatic("a strategy with a mesh of its own, on the CPU")
    if strategy.known is not None:
        draft.common_kwargs["mesh"] = name = draft.fresh("mesh", "fsdp_mesh")
        draft.before.append(_made(name, strategy.known, draft))
    elif strategy.keys:
        _by_key(strategy, draft)
    else:
        draft.common_kwargs["mesh"] = name = draft.fresh("mesh", "fsdp_mesh")
        draft.before.append(f"{name} = {draft.imported(SUPPORT, 'strategy_mesh')}({strategy.name})")


def _made(name: str, strategy: str, draft: Draft) -> str:
    """The statements that bind the mesh of one strategy."""
    dist = distributed(draft)
    if strategy not in HYBRID:
        return (
            f"# NO_SHARD: each rank holds the whole parameters, and gradients are all-reduced.\n"
            f'{name} = {_make(draft)}("cuda", ({dist}.get_world_size(), 1), mesh_dim_names={_NAMES})'
        )
    count = draft.fresh("devices", "devices_of_node")
    return (
        f"{count} = {draft.imported('torch')}.cuda.device_count()  # {strategy} shards inside a node\n"
        f"{name} = {_make(draft)}(\n"
        f'    "cuda", ({dist}.get_world_size() // {count}, {count}), mesh_dim_names={_NAMES}\n'
        ")"
    )


def _by_key(strategy: Strategy, draft: Draft) -> None:
    """The mesh of some of the strategies that a key stands for."""
    draft.common_kwargs["mesh"] = name = draft.fresh("mesh", "fsdp_mesh")
    lines = [f"{name} = None"]
    for kind in (HYBRID, strategy.names - HYBRID):
        keys = [key for key, meant in strategy.keys.items() if meant in kind]
        if not keys:
            continue
        test = f"== {keys[0]}" if len(keys) == 1 else f"in ({', '.join(keys)})"
        made = _made(name, strategy.keys[keys[0]], draft).split("\n")
        lines += [f"if {strategy.key} {test}:", *("    " + line for line in made)]
    draft.before.append("\n".join(lines))


def _from_mesh(value: cst.BaseExpression, strategy: Strategy, draft: Draft, several: bool) -> str:
    """A mesh that is seen to have one dimension, or two with names; of others, what run time says is asked."""
    origins = [origin for origin in draft.file.origins(value) if not origin.is_none]
    seen = {_dimensions(origin) for origin in origins}
    names = seen.pop() if len(seen) == 1 else ()
    if len(names) == 2 and not any(names) and strategy.names & HYBRID:
        _name_dimensions(origins, draft)
        names = ("replicate", "shard")
    if len(names) == 2 and not all(names):
        raise NotStatic("device_mesh has two dimensions without names")
    if len(names) not in (1, 2) or len(origins) < len(draft.file.origins(value)):
        return _from_any_mesh(value, strategy, draft)
    if len(names) == 2 and strategy.names & HYBRID and not strategy.names <= HYBRID:
        return _from_any_mesh(value, strategy, draft)
    if strategy.meshes and (len(names) == 1 or not strategy.names <= HYBRID):
        raise NotStatic(f"sharding_strategy {', '.join(sorted(strategy.meshes))} with a device_mesh of another shape")
    text = draft.file.quote(value)
    if isinstance(value, cst.Call) and (several or len(names) == 2):
        text = draft.fresh("mesh", "fsdp_mesh")
        draft.before.append(f"{text} = {draft.file.quote(value)}")
    sliced = any(isinstance(origin.node, cst.Subscript) for origin in origins)
    if strategy.names <= HYBRID:
        # A mesh that is made covers all ranks, so that a broadcast to all covers both of its dimensions.
        draft.group = None if sliced else ""
        return text
    if len(names) == 2:
        draft.notes.append(Note(f"device_mesh has two dimensions: FSDP1 sharded over the first, {names[0]}, alone"))
        text = f'{text}["{names[0]}"]'
    if sliced or len(names) == 2:
        draft.group = f"{text}.get_group()"
    return text


def _name_dimensions(origins: Sequence[Origin], draft: Draft) -> None:
    """`fully_shard` asks for names of two dimensions."""
    for origin in origins:
        call = cst.ensure_type(origin.node, cst.Call)
        end = origin.file.span(call.args[-1].value)[1]
        draft.edits.append((origin.file, Edit(end, end, f", mesh_dim_names={_NAMES}")))
        draft.definitions.add(call)


def _from_any_mesh(value: cst.BaseExpression, strategy: Strategy, draft: Draft) -> str:
    """A mesh whose dimensions only run time knows, if there is one."""
    text = draft.file.quote(value)
    is_given = not any(origin.is_none or origin.node is None for origin in draft.file.origins(value))
    if strategy.names <= HYBRID and is_given:
        draft.mesh, draft.group = text, None
        return text
    name = draft.fresh("mesh", "fsdp_mesh")
    if strategy.meshes:
        if not strategy.name and strategy.known is None:
            raise NotStatic("device_mesh is not seen, and the strategy is one of several")
        which = strategy.name or f'"{strategy.known}"'
        made = f"{draft.imported(SUPPORT, 'mesh_of_strategy')}({which}, {text})"
    else:
        made = f"{draft.imported(SUPPORT, 'first_dimension')}({text})"
    draft.before.append(f"{name} = {made}")
    draft.mesh, draft.mesh_is_optional, draft.group = name, not is_given, None
    return name


def _from_group(value: cst.BaseExpression, strategy: Strategy, draft: Draft) -> None:
    """One group to shard over, or the two of a hybrid strategy."""
    origins = draft.file.origins(value)
    if all(is_world(origin) for origin in origins) and not strategy.meshes:
        return
    if "NO_SHARD" in strategy.names and strategy.known is None:
        raise NotStatic("process_group, with a strategy that may be NO_SHARD")
    pair = [element.value for element in value.elements] if isinstance(value, cst.Tuple) else []
    if strategy.known in HYBRID and len(pair) != 2:
        raise NotStatic(f"sharding_strategy {strategy.known} with process_group")
    is_tuple = any(isinstance(origin.node, cst.Tuple) for origin in origins)
    if is_tuple and not strategy.names & HYBRID:
        raise NotStatic("process_group is not seen to be one group")
    device = _device_type(draft, "process_group")
    name, item = draft.fresh("mesh", "fsdp_mesh"), "torch.distributed.device_mesh"
    draft.common_kwargs["mesh"] = name
    text = draft.file.quote(value)
    if pair:
        groups = ", ".join(draft.file.quote(group) for group in pair)
        made, draft.group = f'{draft.imported(SUPPORT, "hsdp_mesh_from_groups")}({groups}, "{device}")', None
        draft.mesh = name
    elif strategy.known is None and strategy.meshes:  # a pair of groups for a hybrid strategy, one for others
        made, draft.group = f'{draft.imported(SUPPORT, "group_mesh")}({text}, "{device}")', None
        draft.mesh, draft.mesh_is_optional = name, _may_be_none(value, origins)
    elif strategy.known == "NO_SHARD":
        made, draft.group = f'{draft.imported(SUPPORT, "replicate_mesh")}("{device}", {text})', text
    else:
        made = f'{draft.imported(item, "DeviceMesh")}.from_group({text}, "{device}")'
        draft.group = text if isinstance(value, cst.Name) else f"{name}.get_group()"
        if _may_be_none(value, origins):
            if not isinstance(value, (cst.Name, cst.Attribute)):
                raise NotStatic("process_group may be None")
            made, draft.group = f"{made} if {text} is not None else None", text
    draft.before.append(f"{name} = {made}")


def _may_be_none(value: cst.BaseExpression, origins: Sequence[Origin]) -> bool:
    """What a parameter or an attribute holds can be None; what a function makes is taken for a group."""
    if isinstance(value, cst.Call):
        return False
    return any(origin.is_none or origin.node is None for origin in origins)


def _dimensions(origin: Origin) -> tuple[str, ...]:
    """The names of a mesh's dimensions, empty ones where it has none; nothing when the mesh is not seen."""
    node = origin.node
    if isinstance(node, cst.Subscript):
        indices = [element.slice.value for element in node.slice if isinstance(element.slice, cst.Index)]
        if len(indices) == 1 and isinstance(indices[0], cst.Tuple):
            indices = [element.value for element in indices[0].elements]
        return _literals(indices)
    if not isinstance(node, cst.Call) or not (origin.file.dotted(node.func) or "").endswith(".init_device_mesh"):
        return ()
    named = {a.keyword.value: a.value for a in node.args if a.keyword is not None}
    shape = named.get("mesh_shape", node.args[1].value if len(node.args) > 1 and not node.args[1].keyword else None)
    names = named.get("mesh_dim_names")
    if isinstance(names, (cst.Tuple, cst.List)):
        return _literals([element.value for element in names.elements])
    return ("",) * len(shape.elements) if isinstance(shape, (cst.Tuple, cst.List)) else ()


def _literals(nodes: list[cst.BaseExpression]) -> tuple[str, ...]:
    if not all(isinstance(node, cst.SimpleString) for node in nodes):
        return ()
    return tuple(str(node.raw_value) for node in nodes if isinstance(node, cst.SimpleString))


def _make(draft: Draft) -> str:
    return draft.imported("torch.distributed.device_mesh", "init_device_mesh")
