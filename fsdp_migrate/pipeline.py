"""From the texts of a program to its report, step by step. Each step is handed what the one before it made.

Prints and writes nothing; of the disk it asks only where modules lie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from codemods.api import Emission, Options
from codemods.plan import Plan

from .edit.changes import Written, write
from .findings import Report
from .fix import fsdp2_lint, make_fixes
from .fsdp1.library import LIBRARY
from .fsdp1.program_model import ProgramModel
from .outcome import make_report, obstacle
from .plan import make_plan
from .plan.context import PlannedModel
from .project.discover import holds_fsdp
from .project.imports import connected, import_graph, programs, resolver
from .project.source import Source
from .project.style import configured_width
from .pyanalysis.program import Program
from .pyanalysis.room import room_for_trees
from .too_large import too_large

__all__ = ["Options", "migrate"]


@room_for_trees()
def migrate(sources: Sequence[Source], options: Options, graph: Mapping[Path, Sequence[Path]] | None = None) -> Report:
    """Rewrite the program that these files make up.

    `graph` tells which of the files each one imports: what nothing connects gets a support module of its own.
    Never raises for a file that cannot be parsed: it is in `Report.errors`, and the rest goes on.
    """
    texts = {source.path: source.text for source in sources}
    graph = import_graph(tuple(texts)) if graph is None else graph
    program = Program(texts, resolver(), LIBRARY, configured_width)  # parses and indexes what is asked for
    model = ProgramModel(program, options, _groups(texts, graph), graph)  # analyses it, from the sources alone
    plan = make_plan(model, graph)
    planned = PlannedModel(model, plan)
    fixes = make_fixes(planned)
    waiting = _waiting(model, plan, graph)
    if not options.writes or obstacle(program, plan):
        written = Written((), (), frozenset(), frozenset())
    else:
        wanted = {p: each for p, each in fixes.wanted.items() if not plan.is_kept(p) and p not in waiting}
        written = write(program, wanted, programs(graph) or (tuple(texts),), graph)
    lint = frozenset(fsdp2_lint(planned)) if options.contract else frozenset()
    return make_report(program, plan, fixes, written, lint.union(too_large(model)), waiting)


def _waiting(model: ProgramModel, plan: Plan, graph: Mapping[Path, Sequence[Path]]) -> frozenset[Path]:
    """The files of programs in which no constructor call can be rewritten, beside others in which some can."""
    sites = [site for site in model.wrapping.sites if site.call in plan.wraps]
    moving = {site.file.path for site in sites if plan.emission(site.call) is not Emission.SKIP}
    wrapping, found = {site.file.path for site in sites}, set[Path]()
    for group in programs(graph):
        here = wrapping.intersection(group)
        if here and not any(model.wrapping.runs_with(path, other) for path in here for other in moving):
            found.update(group)
    return frozenset(found)


def _groups(texts: Mapping[Path, str], graph: Mapping[Path, Sequence[Path]]) -> list[tuple[Path, ...]]:
    """The files that belong together. Programs without FSDP that share files with others say nothing of those."""
    hits = [path for path, text in texts.items() if path in graph and holds_fsdp(text.encode("utf-8", "replace"))]
    related = frozenset(connected(graph, hits))
    own = {path: [each for each in graph[path] if each in related] for path in graph if path in related}
    return [*programs(graph), *programs(own)]
