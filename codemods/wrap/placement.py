"""Where and how parameters are sharded: strategy, mesh, offload, device, and the state they start from."""

from __future__ import annotations

import re

import libcst as cst

from codemods.tables.names import PACKAGE
from codemods.tables.strategies import STRATEGIES
from codemods.vocabulary import Origin, Undecided

from .draft import Draft, Note

_SETS_DEVICE = re.compile(r"\bset_device(_index)?$")


def translate_strategy(value: cst.BaseExpression, draft: Draft) -> None:
    """FULL_SHARD and SHARD_GRAD_OP; the others change the mesh."""
    names = set()
    for origin in draft.file.origins(value):
        if origin.is_none:
            names.add("FULL_SHARD")
            continue
        made = origin.file.fsdp1(origin.node) if isinstance(origin.node, cst.BaseExpression) else None
        if made is None or not made.startswith("ShardingStrategy."):
            raise Undecided(f"sharding_strategy: {origin.text}")
        names.add(made.split(".")[1])
    if len(names) != 1:
        raise Undecided(f"sharding_strategy is one of {', '.join(sorted(names))}")
    name = names.pop()
    strategy = STRATEGIES.get(name)
    if strategy is None or strategy.mesh:
        raise Undecided(f"sharding_strategy {name}")
    if _is_parameter(value, draft):
        raise Undecided("sharding_strategy is a parameter that callers may set")
    if strategy.reshard_after_forward:
        draft.both["reshard_after_forward"] = strategy.reshard_after_forward


def translate_offload(value: cst.BaseExpression, draft: Draft) -> None:
    """`CPUOffload(offload_params=…)`; `CPUOffloadPolicy()` pins memory, as FSDP1 does."""
    origins = draft.file.origins(value)
    if all(origin.is_none for origin in origins):
        return
    if len(origins) != 1:
        raise Undecided("cpu_offload is one of several values")
    node = origins[0].node
    if not isinstance(node, cst.Call) or origins[0].file.fsdp1(node.func) != "CPUOffload":
        raise Undecided(f"cpu_offload: {origins[0].text}")
    flag = node.args[0].value if node.args else None
    if flag is None or _is_name(flag, "False"):
        return
    if _is_name(flag, "True"):
        draft.both["offload_policy"] = f"{draft.imported(PACKAGE, 'CPUOffloadPolicy')}()"
    elif node is value:
        offloaded, kept = draft.imported(PACKAGE, "CPUOffloadPolicy"), draft.imported(PACKAGE, "OffloadPolicy")
        draft.both["offload_policy"] = f"{offloaded}() if {draft.file.code(flag)} else {kept}()"
    else:
        raise Undecided("cpu_offload is only known at run time")
    draft.notes.append(
        Note(
            "cpu_offload: gradient norms and state dicts are computed on CPU tensors",
            'give the process group a CPU backend: init_process_group("cpu:gloo,cuda:nccl")',
        )
    )


def translate_mesh(value: cst.BaseExpression, draft: Draft) -> None:
    """A one-dimensional mesh is passed on; FSDP2 reads a two-dimensional one as replicate x shard."""
    origins = draft.file.origins(value)
    if all(origin.is_none for origin in origins):
        return
    if not all(_is_one_dimensional(origin) for origin in origins):
        raise Undecided("device_mesh is not seen to have one dimension")
    draft.both["mesh"] = draft.file.code(value)


def translate_group(value: cst.BaseExpression, draft: Draft) -> None:
    if not all(origin.is_none for origin in draft.file.origins(value)):
        raise Undecided("process_group is given")


def translate_device(value: cst.BaseExpression, draft: Draft) -> None:
    """`device_id`: FSDP2 moves each unit to the current device, so that device must have been set."""
    origins = draft.file.origins(value)
    if all(origin.is_none for origin in origins):
        return
    if all(_is_current(origin) for origin in origins):
        draft.device = draft.file.code(value)
        return
    if all(_is_cpu(origin) for origin in origins):
        make, dist = draft.imported("torch.distributed.device_mesh", "init_device_mesh"), _dist(draft)
        draft.both["mesh"] = mesh = draft.fresh("cpu_mesh", "fsdp_mesh")
        draft.before.append(f'{mesh} = {make}("cpu", ({dist}.get_world_size(),))')
        return
    draft.device = text = draft.file.code(value)
    if _device_is_set(draft):
        return
    torch = draft.imported("torch")
    if any(_is_cpu(origin) for origin in origins):
        draft.before.append(f"if {torch}.cuda.is_available():\n    {torch}.cuda.set_device({text})")
    else:
        draft.before.append(f"{torch}.cuda.set_device({text})")


def translate_sync(value: cst.BaseExpression, draft: Draft) -> None:
    """`sync_module_states=True`: all ranks start from rank 0's parameters and buffers, broadcast before sharding."""
    if _is_name(value, "False"):
        return
    if not _is_name(value, "True"):
        raise Undecided("sync_module_states is only known at run time")
    chain, dist = draft.imported("itertools", "chain"), _dist(draft)
    if draft.device:
        draft.before.append(f"{draft.model}.to({draft.device})")
    tensor = draft.fresh("tensor", "state")
    draft.before.append(
        f"for {tensor} in {chain}({draft.model}.parameters(), {draft.model}.buffers()):  # sync_module_states\n"
        f"    {dist}.broadcast({tensor}.detach(), src=0)"
    )


def translate_absent(name: str, value: cst.BaseExpression, draft: Draft) -> None:
    """An argument whose idiomatic form needs more than this call shows: only its default can go."""
    if not all(origin.is_none for origin in draft.file.origins(value)):
        raise Undecided(f"{name} is given")


def _dist(draft: Draft) -> str:
    return draft.imported("torch.distributed", alias="dist")


def _device_is_set(draft: Draft) -> bool:
    """Whether the program sets the device: above the call in its own function, or in another one."""
    file, here = draft.file, draft.file.span(draft.call)[0]
    if file.mentions_elsewhere("set_device") or file.mentions_elsewhere("set_device_index"):
        return True
    own = file.calls(file.scope(draft.call))
    calls = [node for node in file.nodes(cst.Call) if _SETS_DEVICE.search(file.code(node.func))]
    return any(node not in own or file.span(node)[0] < here for node in calls)


def _is_one_dimensional(origin: Origin) -> bool:
    node = origin.node
    if isinstance(node, cst.Subscript) and len(node.slice) == 1:
        index = node.slice[0].slice
        return isinstance(index, cst.Index) and isinstance(index.value, cst.SimpleString)
    if isinstance(node, cst.Call) and (origin.file.dotted(node.func) or "").endswith(".init_device_mesh"):
        shape = next((a.value for a in node.args if a.keyword is not None and a.keyword.value == "mesh_shape"), None)
        if shape is None and len(node.args) > 1 and node.args[1].keyword is None:
            shape = node.args[1].value
        return isinstance(shape, cst.Tuple) and len(shape.elements) == 1
    return False


def _is_current(origin: Origin) -> bool:
    node = origin.node
    return isinstance(node, cst.Call) and (origin.file.dotted(node.func) or "").endswith(".current_device")


def _is_cpu(origin: Origin) -> bool:
    node = origin.node
    if isinstance(node, cst.Call) and origin.file.dotted(node.func) == "torch.device" and len(node.args) == 1:
        node = node.args[0].value
    return isinstance(node, cst.SimpleString) and node.raw_value == "cpu"


def _is_parameter(value: cst.BaseExpression, draft: Draft) -> bool:
    """Whether the name is a parameter of the wrapping function: part of an interface that is not ours to fix."""
    if not isinstance(value, cst.Name):
        return False
    scope = draft.file.scope(draft.call)
    if not isinstance(scope, cst.FunctionDef):
        return False
    params = scope.params
    return value.value in {p.name.value for p in (*params.posonly_params, *params.params, *params.kwonly_params)}


def _is_name(node: cst.BaseExpression, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name
