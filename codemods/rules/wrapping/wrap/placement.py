"""Where and how parameters are sharded: strategy, mesh, offload, device, and the state they start from."""

from __future__ import annotations

import libcst as cst

from codemods.api import NotStatic, Origin
from codemods.tables.names import PACKAGE
from codemods.tables.strategies import STRATEGIES

from .draft import Draft, Note


def strategy_name(value: cst.BaseExpression | None, draft: Draft) -> str:
    """The strategy's name. Raises NotStatic when only run time knows it."""
    names = set()
    for origin in draft.file.origins(value) if value is not None else ():
        if origin.is_none:
            names.add("FULL_SHARD")
            continue
        made = origin.file.fsdp1(origin.node) if isinstance(origin.node, cst.BaseExpression) else None
        if made is None or not made.startswith("ShardingStrategy."):
            raise NotStatic(f"sharding_strategy: {origin.text}")
        names.add(made.split(".")[1])
    if len(names) > 1:
        raise NotStatic(f"sharding_strategy is one of {', '.join(sorted(names))}")
    name = names.pop() if names else "FULL_SHARD"
    if name not in STRATEGIES:
        raise NotStatic(f"sharding_strategy {name}")
    if value is not None and _is_parameter(value, draft):
        raise NotStatic("sharding_strategy is a parameter that callers may set")
    return name


def translate_strategy(value: cst.BaseExpression, draft: Draft) -> None:
    """When parameters are freed; over which ranks they lie is said by the mesh."""
    strategy = STRATEGIES[strategy_name(value, draft)]
    if strategy.reshard_after_forward:
        draft.common_kwargs["reshard_after_forward"] = strategy.reshard_after_forward


def translate_offload(value: cst.BaseExpression, draft: Draft) -> None:
    """`CPUOffload(offload_params=…)`; `CPUOffloadPolicy()` pins memory, as FSDP1 does."""
    origins = draft.file.origins(value)
    if all(origin.is_none for origin in origins):
        return
    if len(origins) != 1:
        raise NotStatic("cpu_offload is one of several values")
    node = origins[0].node
    if not isinstance(node, cst.Call) or origins[0].file.fsdp1(node.func) != "CPUOffload":
        raise NotStatic(f"cpu_offload: {origins[0].text}")
    flag = node.args[0].value if node.args else None
    if flag is None or is_name(flag, "False"):
        return
    if is_name(flag, "True"):
        draft.common_kwargs["offload_policy"] = f"{draft.imported(PACKAGE, 'CPUOffloadPolicy')}()"
    elif node is value:
        offloaded, kept = draft.imported(PACKAGE, "CPUOffloadPolicy"), draft.imported(PACKAGE, "OffloadPolicy")
        draft.common_kwargs["offload_policy"] = f"{offloaded}() if {draft.file.quote(flag)} else {kept}()"
    else:
        raise NotStatic("cpu_offload is only known at run time")
    draft.notes.append(
        Note(
            "cpu_offload: gradient norms and state dicts are computed on CPU tensors",
            'give the process group a CPU backend: init_process_group("cpu:gloo,cuda:nccl")',
        )
    )


def translate_sync(value: cst.BaseExpression, draft: Draft) -> None:
    """`sync_module_states`: all ranks start from the first one's values, broadcast before sharding."""
    if all(is_named(origin, "False") or origin.is_none for origin in draft.file.origins(value)):
        return
    condition = "" if is_name(value, "True") else draft.file.quote(value)
    if "\n" in draft.file.plain(condition):
        raise NotStatic("sync_module_states is an expression of several lines")
    if draft.group is None:
        raise NotStatic("sync_module_states over more than one group")
    chain, dist = draft.imported("itertools", "chain"), distributed(draft)
    lines = [f"{draft.model}.to({draft.device})"] if draft.device else []
    source = "src=0"
    if draft.group:
        group = draft.group
        if not draft.file.plain(group).isidentifier():
            group = draft.fresh("group", "shard_group")
            lines.append(f"{group} = {draft.group}")
        source = f"src={dist}.get_global_rank({group}, 0), group={group}"
    tensor = draft.fresh("tensor", "state")
    loop = [
        f"for {tensor} in {chain}({draft.model}.parameters(), {draft.model}.buffers()):  # sync_module_states",
        f"    {dist}.broadcast({tensor}.detach(), {source})",
    ]
    if draft.ignored:
        loop[1:] = [f"    if {tensor} not in {draft.ignored}:", "    " + loop[1]]
    lines += loop
    if condition:
        lines = [f"if {condition}:", *("    " + line for line in lines)]
    draft.before.append("\n".join(lines))


def translate_absent(name: str, value: cst.BaseExpression, draft: Draft) -> None:
    """An argument whose idiomatic form needs more than this call shows: only its default can go."""
    if not all(origin.is_none for origin in draft.file.origins(value)):
        raise NotStatic(f"{name} is given")


def distributed(draft: Draft) -> str:
    return draft.imported("torch.distributed", alias="dist")


def _is_parameter(value: cst.BaseExpression, draft: Draft) -> bool:
    """Whether the name is a parameter of the wrapping function: part of an interface that is not ours to fix."""
    if not isinstance(value, cst.Name):
        return False
    scope = draft.file.scope(draft.call)
    if not isinstance(scope, cst.FunctionDef):
        return False
    params = scope.params
    return value.value in {p.name.value for p in (*params.posonly_params, *params.params, *params.kwonly_params)}


def is_named(origin: Origin, name: str) -> bool:
    return isinstance(origin.node, cst.Name) and origin.node.value == name


def is_name(node: cst.BaseExpression, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name
