"""Which files keep the FSDP1 they name: rewriting them by halves would be worse than not at all.

A program with an FSDP2 path beside its FSDP1 path keeps the latter, and one with a subclass of FSDP keeps models that
nothing here can rewrite. What serves such a model stays with it, and so does a constructor call that shares that code.
Copies of torch's sources and generated files are not the user's to change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import libcst as cst

from codemods.api import KeepReason
from codemods.reading.wrapped import wrapped_module
from codemods.rules.wrapping import wrap
from codemods.skipped import fsdp_subclass, generated, side_by_side, vendored

from .analysis.program_model import FileContext, ProgramModel
from .analysis.tree import Tree
from .project.imports import connected, reachable

Graph = Mapping[Path, Sequence[Path]]


def decide(facts: ProgramModel, naming: Sequence[Tree], serving: Sequence[Tree], graph: Graph) -> None:
    """Set the files that are not rewritten.

    `naming` are those that name FSDP1, `serving` those that use what can be an FSDP model.
    """
    files = [facts.file(tree) for tree in naming]
    foreign = {file.path for file in files if vendored.is_copy(file) or generated.is_generated(file)}
    own = [file for file in files if file.path not in foreign]
    calls = {file.path: list(wrap.constructor_calls(file, file.tree.nodes(cst.Call))) for file in own}
    facts.switches = _switches(facts, own, calls)
    seeds = {file.path: cause for file in own for cause in _reasons(facts, file, calls[file.path])}
    wrapping = {path for path, found in calls.items() if found} - seeds.keys()
    users = {tree.path for tree in (*naming, *serving)} - foreign
    stays = _spread(seeds, wrapping, users, graph) if seeds else {}
    facts.subclassed = {path: cause for path, cause in stays.items() if isinstance(cause.node, cst.ClassDef)}
    facts.beside = {path: cause for path, cause in stays.items() if path not in facts.subclassed}
    facts.foreign = frozenset(foreign)
    facts.untouched = frozenset(foreign | stays.keys())


def _switches(
    facts: ProgramModel, files: Sequence[FileContext], calls: Mapping[Path, list[cst.Call]]
) -> dict[cst.Call, KeepReason]:
    if not facts.program.mentions("fully_shard"):
        return {}
    found = {
        call: side_by_side.switch_around(file, call, wrapped_module(call))
        for file in files
        for call in calls[file.path]
        if not wrap.is_left(file, call)  # what it stands beside is the tool's FSDP2, not the user's
    }
    return {call: switch for call, switch in found.items() if switch is not None}


def _reasons(facts: ProgramModel, file: FileContext, calls: list[cst.Call]) -> Sequence[KeepReason]:
    switches = [facts.switches[call] for call in calls if call in facts.switches]
    if switches:
        return switches[:1]
    return [KeepReason(file, definition) for definition, _ in fsdp_subclass.definitions(file)[:1]]


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
