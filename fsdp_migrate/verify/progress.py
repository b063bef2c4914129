"""One live bar for each run of a check."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from fsdp_migrate.verify.runner import Progress


@contextmanager
def progress_bars(console: Console) -> Iterator[Progress]:
    """Bars that appear as the runs begin; on a console that is no terminal they are not drawn."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("steps"))
    with Bars(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal) as bars:
        known: dict[str, TaskID] = {}

        def tell(run: str, steps: int, wanted: int) -> None:
            if run not in known:
                for task in known.values():
                    bars.stop_task(task)
                known[run] = bars.add_task(run, total=wanted)
            bars.update(known[run], completed=steps)

        yield tell
