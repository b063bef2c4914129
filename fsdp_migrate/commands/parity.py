"""The commands that run programs: `check SCRIPT --run-gpus N`, and its halves `record` and `compare`."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fsdp_migrate import __version__
from fsdp_migrate.baseline import BaselineError, Sides, choose, tree_of
from fsdp_migrate.config import Config
from fsdp_migrate.console import err, is_coloured, out
from fsdp_migrate.project.git import commit_of
from fsdp_migrate.render.nothing import shown
from fsdp_migrate.render.view import Command
from fsdp_migrate.session import examine, gather

from . import lint

if TYPE_CHECKING:
    from fsdp_migrate.verify import CheckRequest, Failure, ParityReport, Progress, Setting
import ast
import re
from collections.abc import Iterable, Iterator

from codemods.api import Finding, Level

TEXT = ("full", "concise")
"""The formats for people; for machines there is one document, that of the parity run."""


def run(script: Path, options: Config) -> int:
    """The lint gate on the program, then both programs. 0: the same training. 1: not the same. 2: could not be run,
    or could not be decided."""
    if not _can_write(options.html):
        return 2
    with tempfile.TemporaryDirectory(prefix="fsdp-migrate-", ignore_cleanup_errors=True) as scratch:
        try:
            sides = choose(script, options, Path(scratch).resolve())
        except BaselineError as error:
            err(f"error: {error}\n    {error.hint}\n")
            return 2
        except OSError as error:
            err(f"error: no copy of the program could be made: {error}\n    free space there, or set TMPDIR\n")
            return 2
        if options.output_format in TEXT:
            lint.run([script], options)
        err(f"{sides.says}\n")
        report = _with_what_was_left(_checked(sides, options), sides, options)
        return _show(replace(report, setting=_setting(script, sides)), options)


def record(script: Path, options: Config, folder: Path, save_init: bool, init_from: Path | None) -> int:
    """Run one program. 0: its recording lies in the folder. 2: it could not be run."""
    from fsdp_migrate.verify import Failure
    from fsdp_migrate.verify import record as make

    if not script.is_file():
        err(f"error: {script} does not exist\n    give the path of the training script\n")
        return 2
    tree = tree_of(script, Path.cwd())
    sides = Sides(tree.root, tree.script, tree.root, tree.script, tree.cwd, "")
    with _progress(options) as progress:
        made = make(_request(sides, options, folder), folder, progress, save_init, init_from)
    if isinstance(made, Failure):
        _tell(made)
        return 2
    floors = f", and again {made.floors} times from weights one ulp away" if made.floors else ""
    out(f"Recorded the {made.side} program in {folder}: {made.steps} steps on {made.ranks} ranks{floors}.\n")
    return 0


def compare(original: Path, rewritten: Path, options: Config) -> int:
    """Compare two recordings. The exit codes of `run`."""
    from fsdp_migrate.verify import compare as judge

    return _show(judge(original, rewritten, options.allow), options) if _can_write(options.html) else 2


def _setting(script: Path, sides: Sides) -> Setting:
    from fsdp_migrate.verify import Setting

    python = ".".join(map(str, sys.version_info[:3]))
    return Setting(
        program=shown(script, Path.cwd()),
        command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        original=sides.says.removeprefix("the original is "),
        rewritten=commit_of(script.resolve().parent),
        versions=f"fsdp-migrate {__version__}, Python {python}",
        date=datetime.now().astimezone().isoformat(" ", "minutes"),
    )


def _checked(sides: Sides, options: Config) -> ParityReport:
    from fsdp_migrate.verify import dry_run, run_check

    request = _request(sides, options, Path(options.keep) if options.keep else None)
    with _progress(options) as progress:
        if options.dry_run_world:
            return dry_run(request, options.dry_run_world, progress)
        return run_check(request, progress, lambda: _reported(sides, options))


def _with_what_was_left(report: ParityReport, sides: Sides, options: Config) -> ParityReport:
    """What to do about a rewritten program that stopped, where `rewrite` had left it to a person."""
    failure = report.failure
    if failure is None or "rewritten" not in failure.side or not failure.traceback:
        return report
    root = sides.rewritten_root.resolve()
    program = gather([root / sides.rewritten], replace(options, select=(), ignore=()))
    left = left_there(
        failure.traceback, examine(program, options, Command.CHECK, root, once=False).report.findings, root
    )
    if left is None:
        return report
    place, finding = left
    hint = f"{finding.rule} was left to you at {place}: {finding.hint or finding.message}"
    return replace(report, failure=replace(failure, hint=hint))


def _reported(sides: Sides, options: Config) -> Mapping[str, Collection[int]]:
    """The lines of the original that `rewrite` has something to say about, by their paths below its root."""
    root = sides.original_root.resolve()
    program = gather([root / sides.original], replace(options, select=(), ignore=()))
    lines: dict[str, set[int]] = defaultdict(set)
    for finding in examine(program, options, Command.REWRITE, root, once=False).report.findings:
        if finding.path.is_relative_to(root):
            lines[str(finding.path.relative_to(root))].add(finding.line)
    return lines


def _request(sides: Sides, options: Config, keep: Path | None) -> CheckRequest:
    from fsdp_migrate.verify import CheckRequest
    from fsdp_migrate.verify.expectation import expectation

    return CheckRequest(
        original=_named(sides.original, sides, options),
        rewritten=_named(sides.rewritten, sides, options),
        original_root=sides.original_root,
        rewritten_root=sides.rewritten_root,
        cwd=sides.cwd,
        as_module=bool(options.module),
        world_size=options.run_gpus or options.run_cpus or 1,
        device="cuda" if options.run_gpus else "cpu",
        steps=options.steps,
        args=options.args,
        seed=options.seed,
        allow=options.allow,
        checkpoint_format=options.checkpoint_format,
        expect=expectation(options.expect) if options.expect else None,
        reuse=not options.fresh,
        floor_runs=options.floor_runs,
        init=options.init,  # type: ignore[arg-type]  # the configuration lets no other word through
        resume_args=options.resume_args or None,
        from_baseline_checkpoint=options.from_baseline_checkpoint,
        launcher=options.launcher or None,
        nodes=options.nnodes,
        node_rank=options.node_rank,
        rdzv_endpoint=options.rdzv_endpoint or None,
        torchrun_args=options.torchrun_args,
        hang_timeout=options.hang_timeout,
        start_timeout=options.start_timeout,
        python=options.python or sys.executable,
        spawns=options.spawns,  # type: ignore[arg-type]
        redirect=options.redirect,  # type: ignore[arg-type]
        keep=keep.resolve() if keep is not None else None,
    )


def _named(script: Path, sides: Sides, options: Config) -> Path:
    """The script, or with --module the module's name, as the folder that the run starts in sees it."""
    if not options.module:
        return script
    parts = script.with_suffix("").relative_to(sides.cwd).parts
    return Path(".".join(parts[:-1] if parts[-1] == "__main__" else parts))


def _progress(options: Config) -> AbstractContextManager[Progress]:
    from rich.console import Console

    from fsdp_migrate.verify.progress import progress_bars

    return progress_bars(Console(stderr=True, quiet=options.quiet))


def _can_write(page: str) -> bool:
    """Asked before the run: a page that cannot be written must not cost its result."""
    if not page or Path(page).resolve().parent.is_dir():
        return True
    err(f"error: the folder of {page} does not exist\n    make it, or give another --html FILE\n")
    return False


def _show(report: ParityReport, options: Config) -> int:
    if options.html:
        from fsdp_migrate.verify.report_html import to_html

        Path(options.html).write_text(to_html(report), encoding="utf-8")
    if options.output_format == "json":
        from fsdp_migrate.verify.report_json import to_json

        out(to_json(report) + "\n")
    elif options.output_format == "junit":
        from fsdp_migrate.verify.report_junit import to_junit

        out(to_junit(report) + "\n")
    else:
        from rich.console import Console

        from fsdp_migrate.verify.report_text import render

        width = None if sys.stdout.isatty() else 120
        render(report, Console(width=width, no_color=not is_coloured(sys.stdout)))
    return report.exit_code


def _tell(failure: Failure) -> None:
    err(f"{failure.traceback or failure.log}\nerror: {failure.message}\n    {failure.hint}\n".lstrip("\n"))


# Why a rewritten program stops: its traceback goes through what `rewrite` left to a person.

_FRAME = re.compile(r'File "(.+?)", line (\d+)')
_COMMENT_LINES = 1
"""A comment that says what is left stands above its statement."""


def left_there(traceback: str, findings: Iterable[Finding], root: Path) -> tuple[str, Finding] | None:
    """The innermost frame where something is left to do, as `file:line`, and what: in that line, else in its function.
    Paths are taken below `root`, for the run was in a copy of it."""
    left = [finding for finding in findings if finding.level is Level.MANUAL and finding.path.is_relative_to(root)]
    frames = [(Path(file), int(line)) for file, line in reversed(_FRAME.findall(traceback))]
    return next(_in_lines(frames, left, root), None) or next(_in_functions(frames, left, root), None)


def _in_lines(frames: list[tuple[Path, int]], left: list[Finding], root: Path) -> Iterator[tuple[str, Finding]]:
    for file, line in frames:
        for finding in left:
            if 0 <= line - finding.line <= _COMMENT_LINES and _is_copy(file, finding.path, root):
                yield f"{finding.path.relative_to(root)}:{line}", finding


def _in_functions(frames: list[tuple[Path, int]], left: list[Finding], root: Path) -> Iterator[tuple[str, Finding]]:
    for file, line in frames:
        here = [finding for finding in left if _is_copy(file, finding.path, root)]
        lines = _function(here[0].path, line) if here else range(0)
        yield from ((f"{each.path.relative_to(root)}:{each.line}", each) for each in here if each.line in lines)


def _is_copy(file: Path, path: Path, root: Path) -> bool:
    parts = path.relative_to(root).parts
    return file.parts[-len(parts) :] == parts


def _function(path: Path, line: int) -> range:
    """The lines of the innermost function around a line."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return range(0)
    functions = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    around = [range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in functions]
    return min((lines for lines in around if line in lines), key=len, default=range(0))
