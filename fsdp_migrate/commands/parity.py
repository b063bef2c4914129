"""`fsdp-migrate check SCRIPT --run-gpus N`: the lint gate on the program, then both programs under torchrun."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from fsdp_migrate.baseline import BaselineError, Sides, choose
from fsdp_migrate.config import Config
from fsdp_migrate.console import err, is_coloured

from . import lint


def run(script: Path, options: Config) -> int:
    """0: the same training. 1: not the same. 2: it could not be run, or could not be decided."""
    with tempfile.TemporaryDirectory(prefix="fsdp-migrate-", ignore_cleanup_errors=True) as scratch:
        try:
            sides = choose(script, options, Path(scratch).resolve())
        except BaselineError as error:
            err(f"error: {error}\n    {error.cure}\n")
            return 2
        lint.run([script], options)
        err(f"{sides.says}\n")
        return _compare(sides, options)


def _compare(sides: Sides, options: Config) -> int:
    from rich.console import Console

    from fsdp_migrate.verify import CheckRequest, run_check
    from fsdp_migrate.verify.report_text import render

    request = CheckRequest(
        original=sides.original,
        rewritten=sides.rewritten,
        original_root=sides.original_root,
        rewritten_root=sides.rewritten_root,
        cwd=sides.cwd,
        world_size=options.run_gpus or options.run_cpus,
        device="cuda" if options.run_gpus else "cpu",
        steps=options.steps,
        args=options.args,
    )
    report = run_check(request, None if options.quiet else _Progress())
    colour = is_coloured(sys.stdout)
    render(report, Console(width=None if sys.stdout.isatty() else 120, no_color=not colour))
    return report.exit_code


class _Progress:
    """One line a run on standard error, which on a terminal counts the steps."""

    def __init__(self) -> None:
        self._run = ""

    def __call__(self, run: str, done: int, wanted: int) -> None:
        if sys.stderr.isatty():
            err(f"\r{run}: step {done} of {wanted} ")
            if done >= wanted:
                err("\n")
        elif run != self._run:
            err(f"running {run} ...\n")
        self._run = run
