"""Which files keep the FSDP1 they name: rewriting them by halves would be worse than not at all.

A program with an FSDP2 path beside its FSDP1 path keeps the latter, and one with a subclass of FSDP keeps models that
nothing here can rewrite. What serves such a model stays with it, and so does a constructor call that shares that code.
Copies of torch's sources and generated files are not the user's to change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import libcst as cst

from codemods.api import Context, KeepReason
from codemods.reading.own_fsdp2.own_shardings import SHARDING, OwnShardings
from codemods.reading.wraps.wrapped import wrapped_module
from codemods.rules.wrapping import wrap
from codemods.skipped import fsdp_subclass, side_by_side

from ..fsdp1.program_model import ProgramModel
from ..project.imports import connected, reachable

Graph = Mapping[Path, Sequence[Path]]


def switches(model: ProgramModel) -> Mapping[cst.Call, KeepReason]:
    """What chooses between a constructor call and an FSDP2 path of the program's own, where anything does."""
    if not model.program.mentions(*SHARDING):
        return {}
    own = OwnShardings(list(map(model.file, model.program.mentioning(*SHARDING))))
    search = side_by_side.Switches(own)
    sites = {
        site.call: site
        for site in model.wrapping.sites
        if site.is_constructor
        and not wrap.is_left(site.file, site.call)  # what it stands beside is the tool's FSDP2, not the user's
    }
    around = {call: search.around(site.file, call, wrapped_module(call)) for call, site in sites.items()}
    found = {call: switch for call, switch in around.items() if switch is not None}
    others = {call: site for call, site in sites.items() if call not in found}
    running = frozenset[Path]().union(*(model.loading.running_with(site.file.path) for site in others.values()))
    files = map(model.file, model.program.mentioning(*side_by_side.STATE_METHODS, within=running))
    return found | {call: reason for call, reason in side_by_side.shared(files, own) if call in others}


def skipped(model: ProgramModel, switches: Mapping[cst.Call, KeepReason], graph: Graph) -> Mapping[Path, KeepReason]:
    """The user's files that are not rewritten, and why."""
    wrapping = model.wrapping
    calls = {file.path: [site.call for site in wrapping.sites if site.file is file] for file in wrapping.own}
    reasons = {file.path: _reason(file, calls[file.path], switches) for file in wrapping.own}
    seeds = {path: reason for path, reason in reasons.items() if reason is not None}
    spreading = {path: reason for path, reason in seeds.items() if not reason.is_alone}
    wraps = {path for path, found in calls.items() if found} - seeds.keys()
    return seeds | (_spread(spreading, wraps, calls.keys() - (seeds.keys() - spreading), graph) if spreading else {})


def _reason(file: Context, calls: Sequence[cst.Call], switches: Mapping[cst.Call, KeepReason]) -> KeepReason | None:
    found = [switches[call] for call in calls if call in switches]
    switch = min(found, key=lambda each: each.is_alone, default=None)
    definitions = [] if switch is not None else fsdp_subclass.definitions(file)
    return KeepReason(file, definitions[0][0]) if definitions else switch


def _spread(
    seeds: Mapping[Path, KeepReason], wrapping: set[Path], users: Collection[Path], graph: Graph
) -> dict[Path, KeepReason]:
    """The files that share a model with the seeds, in the order in which that is found out."""
    stays = dict(seeds)
    queue = list(seeds)
    while queue:
        path = queue.pop(0)
        for near in sorted(_near(path, users, graph) - wrapping - stays.keys()):
            stays[near] = stays[path]
        for other in sorted(wrapping - stays.keys()):
            shared = _near(other, users, graph) & (stays.keys() - seeds.keys())
            shared |= reachable([other], graph) & seeds.keys() if graph else set(seeds)
            if shared:
                stays[other] = stays[min(shared)]
                queue.append(other)
    return stays


def _near(path: Path, users: Collection[Path], graph: Graph) -> set[Path]:
    """What imports a file, and what any of those imports, as far as it can hold a model."""
    return set(connected(graph, [path]) if graph else users) & set(users)
