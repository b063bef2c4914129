"""The report as a table for people."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fsdp_migrate.verify.report import CheckRow, Mark, ParityReport, Verdict, shorten

_STYLE = {
    Mark.PASS: "green",
    Mark.FAIL: "bold red",
    Mark.ALLOWED: "yellow",
    Mark.INFO: "cyan",
    Mark.NOT_AVAILABLE: "yellow",
    Mark.INCONCLUSIVE: "yellow",
}
_DETAIL, _LINE = 240, 400
"""Characters of a detail in the table, and of the reason below it."""
_VERDICT_STYLE = {Verdict.PASS: "bold green", Verdict.FAIL: "bold red"}


def render(report: ParityReport, console: Console) -> None:
    """Print the table, what speaks against the verdict, and the verdict with its reason. Only the table is fitted to
    the width: a log is searched for its sentences."""
    if report.rows:
        console.print(_table(report))
    for warning in report.warnings:
        console.print(f"[yellow]warning[/]: {escape(warning)}", soft_wrap=True)
    if report.failure is not None:
        _render_failure(report, console)
    for limit in report.limits:
        console.print(f"[dim]{escape(limit)}[/]", soft_wrap=True)
    style = _VERDICT_STYLE.get(report.verdict, "bold yellow")
    console.print(f"[{style}]{report.verdict.value}[/] {escape(shorten(report.reason, _LINE))}", soft_wrap=True)
    if report.next_step:
        console.print(f"[bold]next[/]: {escape(report.next_step)}", soft_wrap=True)


def _table(report: ParityReport) -> Table:
    where = f"{report.world_size} processes on {report.device}" if report.device else f"{report.world_size} processes"
    what = "FSDP2 -> its upgrade" if report.is_upgrade else "FSDP1 -> FSDP2 parity"
    table = Table(title=f"{what}, {report.steps} steps, {where}", title_justify="left")
    for heading in ("", "check", "measured", "limit", "verdict"):
        table.add_column(heading, overflow="fold")
    for row in report.rows:
        style = _STYLE[row.mark]
        value = escape(shorten(row.value, _DETAIL))
        table.add_row(row.id, _title(row), value, escape(row.limit), f"[{style}]{row.mark.value}[/]")
    return table


def _title(row: CheckRow) -> str:
    if not row.detail:
        return row.title
    return f"{row.title}\n[dim]{escape(shorten(row.detail, _DETAIL))}[/]"


def _render_failure(report: ParityReport, console: Console) -> None:
    failure = report.failure
    assert failure is not None
    if failure.traceback:
        console.print(escape(failure.traceback.rstrip()), highlight=False, soft_wrap=True)
    elif failure.log:
        console.print(f"[dim]{escape(failure.log)}[/]", highlight=False, soft_wrap=True)
    console.print(f"[bold]what to do[/]: {escape(failure.hint)}", soft_wrap=True)
