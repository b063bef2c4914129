"""`fsdp-migrate upgrade`: what FSDP2 makes possible, in place, into another folder, or as a diff."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fsdp_migrate.config import Config
from fsdp_migrate.console import err
from fsdp_migrate.project.source import UnwritableError
from fsdp_migrate.session import FSDP1_WORD, FSDP2_WORD, Program, gather, upgraded

from .new_texts import print_diff, with_error, write_copy, write_in_place


def run(script: Path, asked: Mapping[str, str], options: Config, diff: bool, output: Path | None) -> int:
    """Upgrade, and report. 0: all done. 1: something needs a person. 2: nothing to upgrade, or a file cannot be read
    or written."""
    if not asked:
        err("error: nothing was asked for\n    fsdp-migrate upgrade --help lists what there is\n")
        return 2
    program = gather([script], options)
    if not program.problems and not _shards(program):
        err(f"error: {script} and what it imports shard no model\n    an upgrade is for a program with fully_shard\n")
        return 2
    from fsdp_migrate.render.view import exit_code

    from .show import show

    view = upgraded(program, asked, options, Path.cwd())
    done: list[str] = []
    try:
        if diff:
            print_diff(view, program)
        elif output is not None:
            done = write_copy(view, program, output, [])
        else:
            done = write_in_place(view, program)
    except UnwritableError as error:
        view = with_error(view, error)
    show(view, options, done, to_stderr=diff)
    return exit_code(view, options.strict)


def _shards(program: Program) -> bool:
    return any(FSDP2_WORD.search(text) or FSDP1_WORD.search(text) for text in program.texts.values())
