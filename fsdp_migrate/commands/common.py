"""What `rewrite` and `check` have in common: reading the program, and the answer when there is no FSDP in it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fsdp_migrate.config import Config
from fsdp_migrate.console import err, out
from fsdp_migrate.project.source import UnreadableError, source_of
from fsdp_migrate.render.nothing import not_done, nothing_found, shown
from fsdp_migrate.session import Program, from_text, gather

STDIN = Path("-")
DEFAULT_NAME = Path("stdin.py")


def read(paths: Sequence[Path], options: Config, stdin_name: Path | None) -> Program:
    """The program of the PATH arguments; `-` is a single file on standard input."""
    if STDIN not in paths:
        return gather(paths, options)
    name = Path.cwd() / (stdin_name or DEFAULT_NAME)
    try:
        return from_text(source_of(name, sys.stdin.buffer.read()))
    except UnreadableError as error:
        return Program({}, problems=(error,), files=1)


def has_work(program: Program, options: Config) -> bool:
    """Whether the pipeline is needed. The formats for machines always get their document."""
    return program.speaks_of_fsdp or program.may_hide or options.output_format not in ("full", "concise")


def answer_nothing(program: Program) -> int:
    """Say that there is no FSDP, and which files could not be read."""
    for problem in program.problems:
        err(f"{shown(problem.path, Path.cwd())}: error {problem.message}\n    {problem.hint}\n")
    out(
        " ".join(
            filter(None, (nothing_found(program.files, errors=len(program.problems)), not_done(len(program.problems))))
        )
        + "\n"
    )
    return 2 if program.problems else 0
