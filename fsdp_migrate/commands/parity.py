"""`fsdp-migrate check SCRIPT --run-gpus N`: the lint gate on the program, then both programs under torchrun."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from fsdp_migrate.baseline import BaselineError, Sides, choose
from fsdp_migrate.config import Config
from fsdp_migrate.console import err, is_coloured, out

from . import lint

if TYPE_CHECKING:
    from fsdp_migrate.verify import ParityReport

TEXT = ("full", "concise")
"""The formats for people; for machines there is one document, that of the parity run."""


def run(script: Path, options: Config) -> int:
    """0: the same training. 1: not the same. 2: it could not be run, or could not be decided."""
    with tempfile.TemporaryDirectory(prefix="fsdp-migrate-", ignore_cleanup_errors=True) as scratch:
        try:
            sides = choose(script, options, Path(scratch).resolve())
        except BaselineError as error:
            err(f"error: {error}\n    {error.cure}\n")
            return 2
        if options.output_format in TEXT:
            lint.run([script], options)
        err(f"{sides.says}\n")
        return _compare(sides, options)


def _compare(sides: Sides, options: Config) -> int:
    from rich.console import Console

    from fsdp_migrate.verify import CheckRequest, run_check
    from fsdp_migrate.verify.progress import progress_bars

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
        seed=options.seed,
        allow=options.allow,
        launcher=options.launcher or None,
        keep=Path(options.keep).resolve() if options.keep else None,
    )
    with progress_bars(Console(stderr=True, quiet=options.quiet)) as progress:
        report = run_check(request, progress)
    _show(report, options)
    return report.exit_code


def _show(report: ParityReport, options: Config) -> None:
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
