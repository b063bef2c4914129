"""`process_group`: the ranks of one group, or of the two of a hybrid strategy, as a mesh."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from codemods.api import SUPPORT, Edit, NotStatic, Origin
from codemods.reading.values.choices import Option
from codemods.reading.wraps.process_groups import is_world

from ..draft import Draft
from ..places.in_place import mentions, renamed
from ..strategy.names import Strategy
from .hybrid_only import HYBRID, is_beside_hybrids
from .of_branch import put_into_dict
from .own_meshes import NO_SHARD
from .ranks import CUDA, Ranks, device_type


def from_group(ranks: Ranks, strategy: Strategy, draft: Draft) -> None:
    """Set `mesh`, and the group that `sync_module_states` broadcasts in. Raises NotStatic."""
    if all(is_world(origin) for origin in ranks.origins) and not strategy.meshes:
        return
    pair = [element.value for element in ranks.node.elements] if isinstance(ranks.node, cst.Tuple) else []
    is_pair = not ranks.may_be_none and all(_is_pair(origin) for origin in ranks.origins)
    if strategy.known in HYBRID and len(pair) != 2 and not is_pair:
        raise NotStatic(f"sharding_strategy {strategy.known} with process_group")
    is_tuple = any(isinstance(origin.node, cst.Tuple) for origin in ranks.origins)
    if is_tuple and not strategy.names & HYBRID:
        raise NotStatic("process_group is not seen to be one group")
    device = device_type(draft)
    if _are_pairs_of_branches(ranks, strategy, draft):
        _of_branches(ranks, strategy, device, draft)
        return
    if _is_looked_up(strategy, ranks):
        _look_up(ranks, strategy, device, draft)
        return
    draft.common_kwargs["mesh"] = name = draft.fresh("mesh", "fsdp_mesh")
    if pair or (is_pair and strategy.known in HYBRID):
        groups = ", ".join(draft.file.quote(group) for group in pair) or f"*{ranks.text}"
        made = f"{draft.imported(SUPPORT, 'hsdp_mesh_from_groups')}({groups}, {device})"
        draft.mesh, draft.group = name, None
    elif strategy.names & HYBRID or _is_of_run_time(strategy, ranks):
        made = _one_or_two(name, ranks, strategy, device, draft)
    else:
        made = _one(name, ranks, strategy, device, draft)
    draft.before.append(f"{name} = {made}")
    if strategy.name and is_tuple and not pair:
        of_two = f"{draft.imported(SUPPORT, 'hsdp_mesh_from_groups')}(*{ranks.text}, {device})"
        refused = f'elif {strategy.name} in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):\n    raise ValueError("{_ONE}")'
        two = f"if isinstance({ranks.text}, tuple):\n    {name} = {of_two}\n{refused}"
        draft.before[-1] = f"{two}\nelse:\n    {name} = {made}"
    if strategy.keys and not strategy.names & HYBRID and not _is_of_run_time(strategy, ranks):
        group = draft.group or ""
        replicated = f"{name} = {draft.imported(SUPPORT, 'replicate_mesh')}({device}, {group})"
        draft.before[-1] += "\n" + "\n".join(under_keys(strategy, list(strategy.keys), [NO_SHARD, replicated]))


def _is_pair(origin: Origin) -> bool:
    return isinstance(origin.node, cst.Tuple) and len(origin.node.elements) == 2


def _are_pairs_of_branches(ranks: Ranks, strategy: Strategy, draft: Draft) -> bool:
    """Whether two groups are given by the branches that choose a hybrid strategy, and none by the others."""
    ctx, value, chosen = draft.file, ranks.node, strategy.value
    if not isinstance(value, cst.Name) or chosen is None or strategy.name or "NO_SHARD" in strategy.names:
        return False
    pairs = [origin for origin in ranks.origins if not origin.is_none]
    seen = all(origin.file is ctx and isinstance(origin.node, cst.Tuple) for origin in pairs)
    _, uses = mentions(ctx, ctx.scope(draft.call), value.value)
    return seen and ranks.may_be_none and uses == [value] and is_beside_hybrids(ranks.origins, chosen, draft)


def _of_branches(ranks: Ranks, strategy: Strategy, device: str, draft: Draft) -> None:
    """Each pair of groups becomes its mesh where it stands."""
    ctx, value = draft.file, cst.ensure_type(ranks.node, cst.Name)
    for origin in ranks.origins:
        if isinstance(origin.node, cst.Tuple):
            groups = ", ".join(ctx.quote(element.value) for element in origin.node.elements)
            made = f"{draft.imported(SUPPORT, 'hsdp_mesh_from_groups')}({groups}, {device})"
            draft.edits.append((ctx, Edit(*ctx.bare_span(origin.node), made)))
            draft.definitions.add(origin.node)
    draft.common_kwargs["mesh"] = ctx.quote(value)
    if not put_into_dict(ranks, strategy, draft):
        found = [Option(ctx, each.node, False) for each in ranks.origins if isinstance(each.node, cst.BaseExpression)]
        name = renamed(value, found, draft, ranks.argument, ("mesh", "fsdp_mesh"))
        draft.common_kwargs["mesh"] = draft.mesh = name
        draft.mesh_is_optional, draft.group = True, None


_ONE = "hybrid sharding needs process_group=(shard_group, replicate_group)"


def _is_of_run_time(strategy: Strategy, ranks: Ranks) -> bool:
    """Whether run time alone knows if the ranks of one group hold shards or replicas."""
    return bool(strategy.keys) and strategy.key == strategy.name and not ranks.may_be_none and not ranks.is_made


def _is_looked_up(strategy: Strategy, ranks: Ranks) -> bool:
    """Whether it has a name for sure, of which any that one group can have is one."""
    known = _is_of_run_time(strategy, ranks) and strategy.is_own and not strategy.names & HYBRID
    return known and not strategy.member


def _look_up(ranks: Ranks, strategy: Strategy, device: str, draft: Draft) -> None:
    """One function of the name and the group, in the place of the arguments that are looked up by the name alone."""
    given = [strategy.name, ranks.text, *([] if device == CUDA else [device])]
    made = draft.assigned(strategy.kwargs, draft.imported(SUPPORT, "kwargs_over_group"), given)
    draft.before = [made if each.startswith(f"{strategy.kwargs} = ") else each for each in draft.before]
    draft.group = ranks.text


def _one_or_two(name: str, ranks: Ranks, strategy: Strategy, device: str, draft: Draft) -> str:
    """A pair of groups for a hybrid strategy, one for the others."""
    draft.mesh, draft.mesh_is_optional, draft.group = name, ranks.may_be_none, None
    if strategy.name:
        function = draft.imported(SUPPORT, "mesh_of_group" if ranks.may_be_none else "mesh_over_group")
        return f"{function}({strategy.name}, {ranks.text}, {device})"
    if ranks.may_be_none or "NO_SHARD" in strategy.names:
        raise NotStatic("process_group may be None, or of a strategy that may be NO_SHARD")
    if all(_is_one_group(origin) for origin in ranks.origins):
        raise NotStatic("one process_group for a strategy that may be a hybrid one, which FSDP1 refuses")
    return f"{draft.imported(SUPPORT, 'group_mesh')}({ranks.text}, {device})"


def _is_one_group(origin: Origin) -> bool:
    """Whether a group is seen to be made: `dist.new_group(...)`."""
    node = origin.node
    return isinstance(node, cst.Call) and (origin.file.dotted(node.func) or "").startswith("torch.distributed.")


def _one(name: str, ranks: Ranks, strategy: Strategy, device: str, draft: Draft) -> str:
    """One group, whatever the strategy is."""
    is_repeated = ranks.may_be_none or bool(strategy.meshes)
    text = ranks.held(draft, "group", "process_group") if is_repeated else ranks.text
    draft.group = text if draft.file.plain(text).isidentifier() or ranks.may_be_none else f"{name}.get_group()"
    if strategy.known == "NO_SHARD":
        draft.group = text
        return f"{draft.imported(SUPPORT, 'replicate_mesh')}({device}, {text})"
    made = of_one_group(text, device, draft)
    if strategy.keys:
        draft.group = text
    return f"{made} if {text} is not None else None" if ranks.may_be_none else made


def one_group(ranks: Ranks, draft: Draft) -> str:
    """A group's text, which can be repeated. Raises NotStatic for two groups."""
    if any(isinstance(origin.node, cst.Tuple) for origin in ranks.origins):
        raise NotStatic("process_group is not seen to be one group")
    return ranks.held(draft, "group", "fsdp_group")


def of_one_group(text: str, device: str, draft: Draft) -> str:
    """The text of the mesh of one group."""
    return f"{draft.imported('torch.distributed.device_mesh', 'DeviceMesh')}.from_group({text}, {device})"


def under_keys(strategy: Strategy, keys: Sequence[str], lines: Sequence[str]) -> list[str]:
    """Lines for some of the keys that a strategy is looked up by."""
    test = f"== {keys[0]}" if len(keys) == 1 else f"in ({', '.join(keys)})"
    return [f"if {strategy.key} {test}:", *("    " + line for line in lines)]
