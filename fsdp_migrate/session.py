"""One run over the user's files: find them, read them, hand them to the pipeline, and make its answer ready to show."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .config import Config
from .project.discover import Discovered, discover, is_of_tests, speaks_of_ddp, speaks_of_fsdp, trains
from .project.imports import beside, connected, import_graph, programs, reachable, real
from .project.loaded import links
from .project.source import Source, UnreadableError, check_syntax, encode, read_source
from .pyanalysis.quiet_ast import parsed
from .render.nothing import Remains

if TYPE_CHECKING:
    from .findings import FileError, Report
    from .render.view import Command, View

FSDP1_WORD = re.compile(r"\bFullyShardedDataParallel\b|\bShardedGradScaler\b")
LOADER = re.compile(r"\bimport_module\(|\b__import__\(|\binstantiate\(|\blocate\(")
FSDP2_WORD = re.compile(r"\bfully_shard\b|\bFSDPModule\b|\bfsdp2_support\b")


@dataclass(frozen=True, slots=True)
class Program:
    """What was read for one run."""

    sources: Mapping[Path, Source]
    imports: Mapping[Path, Sequence[Path]] = field(default_factory=dict)
    """Which of the program's files each file imports; nothing when it was handed in as a text."""
    problems: tuple[UnreadableError, ...] = ()
    files: int = 0
    """Python files looked at, whether or not they were worth reading."""
    is_of_scripts: bool = True
    """Whether its files were named, and no folder was looked through."""

    @property
    def speaks_of_fsdp(self) -> bool:
        """Whether the pipeline has anything to look at."""
        return any("fsdp" in text or FSDP1_WORD.search(text) or FSDP2_WORD.search(text) for text in self.texts.values())

    @property
    def may_hide(self) -> bool:
        """Whether it may import modules by names that are made at run time."""
        return any(LOADER.search(source.text) for source in self.sources.values())

    @property
    def texts(self) -> dict[Path, str]:
        return {path: source.text for path, source in self.sources.items()}


def gather(paths: Sequence[Path], config: Config, found: Discovered | None = None) -> Program:
    """The program that the PATH arguments lead to: named files with what they import; in folders, all of FSDP."""
    paths = sorted({real(path) for path in paths})  # the order they are given in is not part of the question
    found = found or discover(paths, config.exclude)
    named = [path for path in paths if not path.is_dir()]
    graph = import_graph(named) if named else {}
    hits = [path for path in found.hits if path not in named]
    whole = graph
    if hits:
        files = [path for path in found.files if path not in found.foreign]
        whole = graph | import_graph(files, config.jobs, found.foreign, is_whole=True)
        related = connected(whole, hits)
        others = (path for path in beside(whole, related, trains) if not is_of_tests(path, paths))
        graph |= {path: whole[path] for path in (*related, *beside(whole, related, speaks_of_ddp), *others)}
    for loading, modules in links(graph, whole).items():
        graph |= {path: whole[path] for path in sorted(reachable(modules, whole)) if path not in graph}
        graph[loading] = (*graph[loading], *modules)
    program = _read(tuple(graph), named)
    return replace(program, imports=graph, files=len({*found.files, *graph}), is_of_scripts=paths == named)


def from_text(source: Source) -> Program:
    """A program of one file that was handed in on standard input."""
    return Program({source.path: source}, files=1)


def examine(program: Program, config: Config, command: Command, folder: Path, *, once: bool = True) -> View:
    """Run the pipeline on a program, and apply what the user wants silenced. `once`: one finding a cause."""
    from .causes import by_cause
    from .findings import FileError
    from .pipeline import Options, migrate
    from .render.view import Command, View, is_construct
    from .rulebook import rulebook
    from .suppress import suppress
    from .todo import with_todos
    from .torch_pin import too_old
    from .unfollowed import hidden

    is_check = command is Command.CHECK
    chosen = config.torch_version, config.checkpoint_format, config.read_fsdp1_files
    # `check` asks what would be rewritten, and not as what; its JSON names the files
    writes = not is_check or config.output_format == "json"
    sees_all = not program.is_of_scripts
    options = Options(*chosen, contract=is_check, marks=not is_check, writes=writes, sees_all=sees_all)
    report = migrate(tuple(program.sources.values()), options, program.imports)
    problems = tuple(FileError(error.path, error.message, error.hint) for error in program.problems)
    report = replace(report, errors=(*problems, *report.errors), files_read=program.files)
    report = with_todos(report, program.texts)
    is_wrapping = any(map(is_construct, report.findings))
    if program.is_of_scripts or not is_wrapping:
        report = replace(report, findings=(*hidden(program.sources, config.exclude, is_wrapping), *report.findings))
    if not is_check:
        report = replace(report, findings=(*too_old(report, config.torch_version), *report.findings))
    report, silenced = suppress(report, program.texts, lambda code: selected(code, config))
    report, deselected = _select(report, config)
    if once:
        report = by_cause(report)
    remains, mention = what_remains(program.texts)
    return View(
        report=_checked(report),
        command=command,
        folder=folder,
        remains=remains,
        mention=mention,
        ignored=silenced + deselected,
        rules=rulebook(),
        programs=programs(program.imports) or (tuple(program.sources),),
        scripts=frozenset(program.sources) - {path for found in program.imports.values() for path in found},
    )


def upgraded(program: Program, asked: Mapping[str, str], config: Config, folder: Path) -> View:
    """Write what was asked for into a program that is FSDP2: names of `codemods.upgrades`, each with its value."""
    from .findings import FileError
    from .render.view import Command, View
    from .rulebook import rulebook
    from .upgrade import upgrade

    report = upgrade(tuple(program.sources.values()), asked, program.imports)
    problems = tuple(FileError(error.path, error.message, error.hint) for error in program.problems)
    report = replace(report, errors=(*problems, *report.errors), files_read=program.files)
    report, deselected = _select(report, config)
    return View(report=_checked(report), command=Command.UPGRADE, folder=folder, ignored=deselected, rules=rulebook())


def selected(code: str, config: Config) -> bool:
    """Whether `--select` and `--ignore` let a rule through. The longer prefix wins: `--ignore FM5 --select FM501`."""
    wanted = max((len(prefix) for prefix in config.select if code.startswith(prefix)), default=-1)
    unwanted = max((len(prefix) for prefix in config.ignore if code.startswith(prefix)), default=-1)
    return (wanted >= 0 or not config.select) and wanted >= unwanted


def what_remains(texts: Mapping[Path, str]) -> tuple[Remains, tuple[Path, int] | None]:
    """What files speak of in which nothing was found, and where FSDP1 is named first."""
    for path, text in texts.items():
        match = FSDP1_WORD.search(text)
        if match:
            return Remains.FSDP1, (path, text.count("\n", 0, match.start()) + 1)
    if any(FSDP2_WORD.search(text) for text in texts.values()):
        return Remains.FSDP2, None
    return Remains.NOTHING, None


def changed_bytes(view: View, program: Program) -> dict[Path, tuple[bytes | None, bytes]]:
    """The files to write, before and after. Raises `UnwritableError` when an encoding cannot hold the new text."""
    pairs: dict[Path, tuple[bytes | None, bytes]] = {}
    for change in view.report.changes:
        source = program.sources.get(change.path) or Source(change.path, "")
        before = None if change.before is None else encode(source, change.before)
        pairs[change.path] = (before, encode(source, change.after))
    return pairs


def _read(paths: Sequence[Path], named: Sequence[Path]) -> Program:
    sources: dict[Path, Source] = {}
    problems: list[UnreadableError] = []
    for path in paths:
        try:
            source = read_source(path)
            if path in named and not speaks_of_fsdp(path):
                check_syntax(source)  # nobody will parse it, and the user asked about this one
            sources[path] = source
        except UnreadableError as error:
            problems.append(error)
    return Program(sources, problems=tuple(problems))


def _select(report: Report, config: Config) -> tuple[Report, int]:
    kept = tuple(finding for finding in report.findings if selected(finding.rule, config))
    return replace(report, findings=kept), len(report.findings) - len(kept)


def _checked(report: Report) -> Report:
    """Without changes, should one of them not be Python: half a program is never written."""
    from .findings import FileError

    broken: list[FileError] = []
    for change in report.changes:
        if (change.before is None or parsed(change.before) is not None) and parsed(change.after) is None:
            hint = "nothing was written; this is a fault of fsdp-migrate, please report it with the file"
            broken.append(FileError(change.path, "the rewritten text is not valid Python", hint))
    return replace(report, changes=(), errors=(*report.errors, *broken)) if broken else report
