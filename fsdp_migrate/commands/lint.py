"""`fsdp-migrate check`: FSDP1 that is left, and FSDP2 used wrongly. Runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fsdp_migrate.config import Config
from fsdp_migrate.session import examine

from .common import answer_nothing, has_work, read


def run(paths: Sequence[Path], options: Config, stdin_name: Path | None = None) -> int:
    """Look, and report. The exit code."""
    program = read(paths, options, stdin_name)
    if not has_work(program, options):
        return answer_nothing(program)
    from fsdp_migrate.render.view import Command, exit_code

    from .show import show

    view = examine(program, options, Command.CHECK, Path.cwd())
    show(view, options)
    return exit_code(view, options.strict)
