"""`process_group`, `device_mesh` and the strategies that are a mesh: over which ranks parameters are sharded.

FSDP2 reads any mesh of two dimensions as (replicate, shard). FSDP1 did so for the hybrid strategies alone; with the
others it sharded over the first dimension. Passed on as it is, such a mesh would silently shard over other ranks, or,
where the second dimension has one, not at all.
"""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from codemods.api import NotStatic, Origin
from codemods.tables.strategies import STRATEGIES

from .draft import Draft, Note
from .placement import distributed, strategy_name

_HYBRID = frozenset({"HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"})
_NAMES = '("replicate", "shard")'


def translate_mesh(arguments: Mapping[str, cst.BaseExpression], draft: Draft) -> None:
    """Set `mesh`, and the group that `sync_module_states` broadcasts in; raise NotStatic for what is not seen."""
    strategy = strategy_name(arguments.get("sharding_strategy"), draft)
    mesh, group = (_given(arguments.get(name), draft) for name in ("device_mesh", "process_group"))
    if mesh is not None:
        draft.common_kwargs["mesh"] = _from_mesh(mesh, strategy, draft, "auto_wrap_policy" in arguments)
    elif group is not None:
        _from_group(group, strategy, draft)
    elif STRATEGIES[strategy].mesh:
        if "auto_wrap_policy" not in arguments and strategy in _HYBRID:
            raise NotStatic(f"sharding_strategy {strategy} without a policy, a group or a mesh, which FSDP1 refuses")
        draft.common_kwargs["mesh"] = _for_strategy(strategy, draft)
    elif draft.device_type == "cpu":
        draft.common_kwargs["mesh"] = name = draft.fresh("cpu_mesh", "fsdp_mesh")
        draft.before.append(f'{name} = {_make(draft)}("cpu", ({distributed(draft)}.get_world_size(),))')


def _given(value: cst.BaseExpression | None, draft: Draft) -> cst.BaseExpression | None:
    if value is None or all(origin.is_none for origin in draft.file.origins(value)):
        return None
    return value


def _for_strategy(strategy: str, draft: Draft) -> str:
    """A mesh that FSDP1 made by itself."""
    if draft.device_type != "cuda":
        raise NotStatic(f"sharding_strategy {strategy}, on a device that is not seen")
    name, dist = draft.fresh("mesh", "fsdp_mesh"), distributed(draft)
    if strategy not in _HYBRID:
        draft.before.append(
            f"# NO_SHARD: each rank holds the whole parameters, and gradients are all-reduced.\n"
            f'{name} = {_make(draft)}("cuda", ({dist}.get_world_size(), 1), mesh_dim_names={_NAMES})'
        )
        return name
    count = draft.fresh("devices", "devices_of_node")
    draft.before.append(
        f"{count} = {draft.imported('torch')}.cuda.device_count()  # {strategy} shards inside a node\n"
        f"{name} = {_make(draft)}(\n"
        f'    "cuda", ({dist}.get_world_size() // {count}, {count}), mesh_dim_names={_NAMES}\n'
        ")"
    )
    return name


def _from_mesh(value: cst.BaseExpression, strategy: str, draft: Draft, several: bool) -> str:
    """A mesh that is seen to have one dimension, or two with names."""
    origins = draft.file.origins(value)
    seen = {_dimensions(origin) for origin in origins}
    if len(seen) != 1:
        raise NotStatic("device_mesh is one of several")
    names = seen.pop()
    if len(names) not in (1, 2) or (len(names) == 2 and not all(names)):
        raise NotStatic("device_mesh is not seen to have one dimension, or two with names")
    if STRATEGIES[strategy].mesh and (len(names) == 1 or strategy not in _HYBRID):
        raise NotStatic(f"sharding_strategy {strategy} with a device_mesh of another shape")
    text = draft.file.quote(value)
    if isinstance(value, cst.Call) and (several or len(names) == 2):
        text = draft.fresh("mesh", "fsdp_mesh")
        draft.before.append(f"{text} = {draft.file.quote(value)}")
    sliced = any(isinstance(origin.node, cst.Subscript) for origin in origins)
    if strategy in _HYBRID:
        # A mesh that is made covers all ranks, so that a broadcast to all covers both of its dimensions.
        draft.group = None if sliced else ""
        return text
    if len(names) == 2:
        draft.notes.append(Note(f"device_mesh has two dimensions: FSDP1 sharded over the first, {names[0]}, alone"))
        text = f'{text}["{names[0]}"]'
    if sliced or len(names) == 2:
        draft.group = f"{text}.get_group()"
    return text


def _from_group(value: cst.BaseExpression, strategy: str, draft: Draft) -> None:
    """One group to shard over. A pair of groups is known at run time only: a mesh is made of ranks."""
    if STRATEGIES[strategy].mesh:
        raise NotStatic(f"sharding_strategy {strategy} with process_group")
    origins = draft.file.origins(value)
    if all(_is_world(origin) for origin in origins):
        return
    if not all(_is_new_group(origin) for origin in origins) or not isinstance(value, cst.Name):
        raise NotStatic("process_group is not seen to be one group")
    if not draft.device_type:
        raise NotStatic("process_group, on a device that is not seen")
    draft.group = draft.file.quote(value)
    mesh, item = draft.fresh("mesh", "fsdp_mesh"), draft.imported("torch.distributed.device_mesh", "DeviceMesh")
    draft.before.append(f'{mesh} = {item}.from_group({draft.group}, "{draft.device_type}")')
    draft.common_kwargs["mesh"] = mesh


def _is_world(origin: Origin) -> bool:
    node = origin.node
    if isinstance(node, cst.Call):
        return (origin.file.dotted(node.func) or "").endswith("._get_default_group")
    return isinstance(node, cst.BaseExpression) and origin.file.dotted(node) == "torch.distributed.group.WORLD"


def _is_new_group(origin: Origin) -> bool:
    node = origin.node
    return isinstance(node, cst.Call) and origin.file.dotted(node.func) == "torch.distributed.new_group"


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
