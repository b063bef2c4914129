"""The meshes that FSDP1 made by itself: of one node for the hybrid strategies, of replicas alone for NO_SHARD."""

from __future__ import annotations

from collections.abc import Collection

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Import
from codemods.reading.edits.layout import insertion, line_before
from codemods.reading.processes.accelerators import DEVICE_TYPE
from codemods.reading.values.choices import Option

from ..draft import Draft
from ..tensors.placement import distributed
from .hybrid_only import HYBRID
from .ranks import CUDA, counted, device_type, is_any_accelerator

NAMES = '("replicate", "shard")'

NO_SHARD = "# Each rank holds the whole parameters, and gradients are all-reduced."


def statements(name: str, strategy: str, draft: Draft, indent: str = "") -> str:
    """The statements that bind the mesh of one strategy, `indent` deeper than the call."""
    device = device_type(draft)
    dist = distributed(draft)
    above, shape = NO_SHARD, f"({dist}.get_world_size(), 1)"
    if strategy in HYBRID:
        above, shape = _node(counted(device, draft), dist, draft)
    line = _made(name, device, shape, make(draft))
    return "\n".join([above, *([line] if draft.fits(indent + line) else _by_name(name, device, shape, draft))])


def _made(name: str, device: str, shape: str, function: str) -> str:
    return f"{name} = {function}({_arguments(device, shape)})"


def _by_name(
    name: str, device: str, shape: str, draft: Draft, function: str = "", taken: Collection[str] = ()
) -> list[str]:
    """The mesh of a shape that has a name, where one line would be too long."""
    named = draft.fresh(*(each for each in ("shape", "mesh_shape", "device_mesh_shape") if each not in taken))
    return [f"{named} = {shape}", _made(name, device, named, function or make(draft))]


def _arguments(device: str, shape: str) -> str:
    return f"{device}, {shape}, mesh_dim_names={NAMES}"


def _device_at(ctx: Context, node: cst.CSTNode, draft: Draft) -> str:
    """The kind of device in the place of an option, where a variable of the call need not be bound."""
    if not is_any_accelerator(draft):
        return CUDA
    return f"{draft.imported_at(ctx, node, Import('torch'))}.{DEVICE_TYPE}"


def at_option(option: Option, strategy: str, draft: Draft) -> str:
    """The mesh of one strategy in the place of an option, in another file too."""
    ctx, node = option.file, option.node
    device = _device_at(ctx, node, draft)
    if strategy in HYBRID:
        return f"{draft.imported_at(ctx, node, Import(SUPPORT, 'node_mesh'))}({device})"
    function, dist = _functions_at(ctx, node, draft)
    return f"{function}({_arguments(device, f'({dist}.get_world_size(), 1)')})"


def _functions_at(ctx: Context, node: cst.CSTNode, draft: Draft) -> tuple[str, str]:
    """`init_device_mesh` and `dist`, in the place of an option."""
    function = draft.imported_at(ctx, node, Import("torch.distributed.device_mesh", "init_device_mesh"))
    return function, draft.imported_at(ctx, node, Import("torch.distributed", alias="dist"))


def in_place(option: Option, strategy: str, draft: Draft) -> tuple[str, Edit] | None:
    """The mesh of a hybrid strategy that is all that is assigned, and the line that comes above."""
    ctx, assignment = option.file, option.file.parent(option.node)
    line = ctx.parent(assignment) if isinstance(assignment, cst.Assign) else None
    block = ctx.parent(line) if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
    if strategy not in HYBRID or line is None or not isinstance(block, cst.IndentedBlock):
        return None
    taken = {node.value for node in ctx.inside(ctx.scope(option.node)) if isinstance(node, cst.Name)}
    device = _device_at(ctx, option.node, draft)
    function, dist = _functions_at(ctx, option.node, draft)
    if ctx.path == draft.file.path:
        count = counted(device, draft)
    else:
        torch = draft.imported_at(ctx, option.node, Import("torch"))
        count = f"{torch}.{'cuda' if device.startswith(CUDA) else 'accelerator'}.device_count()"
    above, shape = _node(count, dist, draft, taken)
    head = line_before(ctx, option.node)
    lines = [_made("mesh", device, shape, function)]
    if len(head) + len(ctx.plain(lines[0].removeprefix("mesh = "))) > ctx.width:
        lines = _by_name("mesh", device, shape, draft, function, taken)
    *named, made = lines
    return made.removeprefix("mesh = "), insertion(ctx, line, [above, *named])


def make(draft: Draft) -> str:
    """The name of `init_device_mesh`."""
    return draft.imported("torch.distributed.device_mesh", "init_device_mesh")


def _node(count: str, dist: str, draft: Draft, taken: Collection[str] = ()) -> tuple[str, str]:
    """What counts the devices of this node, and the shape of its mesh."""
    name = draft.fresh(*(each for each in ("devices", "devices_of_node", "devices_per_node") if each not in taken))
    line = f"{name} = {count}  # sharded inside a node, replicated across"
    return line, f"({dist}.get_world_size() // {name}, {name})"
