"""`fsdp-migrate check`: FSDP1 that is left, and FSDP2 used wrongly. Runs nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fsdp_migrate.config import Config
from fsdp_migrate.console import err, is_coloured, out
from fsdp_migrate.project.discover import Discovered, discover
from fsdp_migrate.project.imports import real
from fsdp_migrate.project.probes import recording
from fsdp_migrate.session import Program, examine, gather

from .common import STDIN, answer_nothing, has_work, read


def run(paths: Sequence[Path], options: Config, stdin_name: Path | None = None) -> int:
    """Look, and report. The exit code."""
    if STDIN in paths or options.no_cache:
        with recording():  # the file system is asked each question once
            program = read(paths, options, stdin_name)
            return _said(_look(program, options)) if has_work(program, options) else answer_nothing(program)
    found = discover(sorted({real(path) for path in paths}), options.exclude)
    return _look_once(paths, options, found)


def _look_once(paths: Sequence[Path], options: Config, found: Discovered) -> int:
    """Say again what an earlier run said, if nothing has changed since; else look, and keep the answer."""
    from fsdp_migrate.project.results import Answer, Results

    colours = is_coloured(sys.stdout), is_coloured(sys.stderr)
    # Where nothing is named and nothing speaks of FSDP, reading the bytes was all there is to do.
    results = Results((Path.cwd(), sorted(paths), options, colours), found.files, found.digest) if found.hits else None
    known = results.get() if results is not None else None
    if known is not None:
        return _said((known.out, known.err, known.code))
    with recording() as answers:
        program = gather(paths, options, found)
        if not has_work(program, options):
            return answer_nothing(program)
        said = _look(program, options)
    if results is not None:
        results.put(Answer(*said), program.imports, answers)
    return _said(said)


def _look(program: Program, options: Config) -> tuple[str, str, int]:
    """What goes to standard output and to standard error, and the exit code."""
    from fsdp_migrate.render.view import Command, exit_code

    from .show import errors, rendered

    view = examine(program, options, Command.CHECK, Path.cwd())
    return rendered(view, options, (), is_coloured(sys.stdout)), errors(view), exit_code(view, options.strict)


def _said(said: tuple[str, str, int]) -> int:
    out_text, err_text, code = said
    err(err_text)
    out(out_text)
    return code
