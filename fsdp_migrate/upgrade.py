"""From the texts of an FSDP2 program to what an upgrade makes of it: the steps of `pipeline`, without a plan.

Nothing has to be decided for the whole program together: each model is upgraded by itself, or a finding says why not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import libcst as cst

from codemods.api import SUPPORT, Context, Finding, Fix, Level, Options, finding
from codemods.upgrades import UPGRADES

from .edit.changes import write
from .findings import Report
from .fix.collect import Collected
from .fsdp1.files import holding
from .fsdp1.library import LIBRARY
from .fsdp1.program_model import FileContext, ProgramModel
from .outcome import in_order, unparsed
from .project.imports import import_graph, programs, resolver
from .project.source import Source
from .project.style import configured_width
from .pyanalysis.program import Program
from .pyanalysis.room import room_for_trees

_SHARD_MODEL = "shard_model"


@room_for_trees()
def upgrade(
    sources: Sequence[Source], asked: Mapping[str, str], graph: Mapping[Path, Sequence[Path]] | None = None
) -> Report:
    """Write into a program what was asked for: names of `UPGRADES`, each with its value.

    Nothing at all is written while any FSDP1 is left. Never raises for a file that cannot be parsed.
    """
    texts = {source.path: source.text for source in sources}
    graph = import_graph(tuple(texts)) if graph is None else graph
    program = Program(texts, resolver(), LIBRARY, configured_width)
    model = ProgramModel(program, Options(), programs(graph), graph)
    made = Collected()
    if model.wrapping.is_any:
        made.take_all(*_fsdp1_first(model, asked))
    else:
        for name, value in asked.items():
            for tree in holding(program, UPGRADES[name].words):
                file = model.file(tree)
                made.take_all(file, ((fix, UPGRADES[name].code) for fix in UPGRADES[name].edit(file, value)))
            for file, call in _by_support(model) if UPGRADES[name].is_about_sharding else ():
                made.take(file.path, Fix(findings=[_decided_there(UPGRADES[name].code, file, call)]))
    fixes = made.fixes()
    # Imports are mended in files that change; what else a file imports of FSDP1's settings is not ours.
    wanted = {path: each for path, each in fixes.wanted.items() if each.edits}
    written = write(program, wanted, programs(graph) or (tuple(texts),), graph)
    errors = (*unparsed(program), *written.errors)
    return Report(in_order(fixes.findings), written.changes, errors, len(program.texts))


def _fsdp1_first(model: ProgramModel, asked: Mapping[str, str]) -> tuple[Context, list[Fix]]:
    site = next(iter(model.wrapping.all_sites.values()))
    code = UPGRADES[next(iter(asked))].code
    hint = "call `fsdp-migrate rewrite` first, and `check` what comes of it"
    said = finding(code, Level.MANUAL, site.file, site.call, "not upgraded: the program still wraps with FSDP1", hint)
    return site.file, [Fix(findings=[said])]


def _by_support(model: ProgramModel) -> Iterator[tuple[FileContext, cst.Call]]:
    for tree in holding(model.program, (_SHARD_MODEL,)):
        if not any(_is_of_support(node) for node in tree.nodes(cst.ImportFrom)):
            continue  # a function of the user's own
        for call in tree.nodes(cst.Call):
            if isinstance(call.func, cst.Name) and call.func.value == _SHARD_MODEL:
                yield model.file(tree), call


def _is_of_support(node: cst.ImportFrom) -> bool:
    """`from fsdp2_support import shard_model`, from whatever package."""
    module = node.module.attr if isinstance(node.module, cst.Attribute) else node.module
    if module is None or module.value != SUPPORT or isinstance(node.names, cst.ImportStar):
        return False
    return any(alias.evaluated_name == _SHARD_MODEL for alias in node.names)


def _decided_there(code: str, file: FileContext, call: cst.Call) -> Finding:
    message = f"not upgraded: {_SHARD_MODEL} of {SUPPORT}.py decides at run time how the model is sharded"
    hint = f"write fully_shard calls in its place, or change {SUPPORT}.py"
    return finding(code, Level.MANUAL, file, call, message, hint)
