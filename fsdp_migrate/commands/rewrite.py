"""`fsdp-migrate rewrite`: in place, into another folder, as a diff, or from standard input to standard output."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fsdp_migrate.config import Config
from fsdp_migrate.project.probes import recording
from fsdp_migrate.project.source import UnwritableError
from fsdp_migrate.session import examine

from .common import STDIN, answer_nothing, has_work, read
from .new_texts import print_diff, print_file, with_error, write_copy, write_in_place


def run(paths: Sequence[Path], options: Config, diff: bool, output: Path | None, stdin_name: Path | None) -> int:
    """Rewrite, and report. The exit code."""
    with recording():  # the file system is asked each question once
        return _run(paths, options, diff, output, stdin_name)


def _run(paths: Sequence[Path], options: Config, diff: bool, output: Path | None, stdin_name: Path | None) -> int:
    program = read(paths, options, stdin_name)
    on_stdout = diff or STDIN in paths
    if not has_work(program, options) and not on_stdout and output is None:
        return answer_nothing(program)
    from fsdp_migrate.render.view import Command, exit_code

    from .show import show

    view = examine(program, options, Command.REWRITE, Path.cwd())
    done: list[str] = []
    try:
        if diff:
            print_diff(view, program)
        elif on_stdout:
            print_file(view, program)
        elif output is not None:
            done = write_copy(view, program, output, [path for path in paths if path.is_dir()])
        else:
            done = write_in_place(view, program)
    except UnwritableError as error:
        view = with_error(view, error)
    show(view, options, done, to_stderr=on_stdout)
    return exit_code(view, options.strict)
