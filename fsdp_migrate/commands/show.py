"""Put a view on standard output, in the format that was asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from fsdp_migrate.config import Config
from fsdp_migrate.console import err, is_coloured, out
from fsdp_migrate.render import text
from fsdp_migrate.render.view import View


def show(view: View, options: Config, done: Sequence[str] = (), to_stderr: bool = False) -> None:
    """The findings and the count on standard output, what could not be read on standard error.

    `to_stderr` moves all of it there, for the runs whose result on standard output is a diff or a file.
    """
    stream = sys.stderr if to_stderr else sys.stdout
    err(errors(view))
    (err if to_stderr else out)(rendered(view, options, done, is_coloured(stream)))


def errors(view: View) -> str:
    """What could not be read, for standard error."""
    paint = text.coloured if is_coloured(sys.stderr) else text.plain
    return "".join(text.error_line(view, error, paint) + "\n" for error in view.report.errors)


def rendered(view: View, options: Config, done: Sequence[str], colour: bool) -> str:
    """The findings and the count, in the format that was asked for."""
    if options.output_format not in ("full", "concise"):
        module = importlib.import_module(f"fsdp_migrate.render.{options.output_format}")
        rendered: str = module.render(view)
        return rendered
    detail: text.Detail = "quiet" if options.quiet else "concise" if options.output_format == "concise" else "full"
    return text.render(view, detail, text.coloured if colour else text.plain, done)
