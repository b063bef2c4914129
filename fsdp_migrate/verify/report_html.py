"""The report as one page that needs nothing else: to look at, to attach to a pull request."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from fsdp_migrate.verify.catalogue import catalogue
from fsdp_migrate.verify.chart import Line, line_chart
from fsdp_migrate.verify.report import CheckRow, Mark, ParityReport, Setting, Verdict, shorten

_CLASS = {
    Mark.PASS: "pass",
    Mark.FAIL: "fail",
    Mark.ALLOWED: "doubt",
    Mark.INFO: "info",
    Mark.NOT_AVAILABLE: "doubt",
    Mark.INCONCLUSIVE: "doubt",
}
_LONG, _MOST = 600, 500
"""Characters of a detail, and names of a list, that the page shows."""
_TITLE = "FSDP1 → FSDP2 parity"
_STYLE = Path(__file__).with_name("report.css")


def to_html(report: ParityReport) -> str:
    """A whole HTML document, with its style and charts inside and no script."""
    body = [
        f"<h1>{_TITLE}</h1>",
        f'<p class="verdict {_verdict_class(report.verdict)}">{escape(report.verdict.value)}</p>',
        f'<p class="reason">{escape(shorten(report.reason, _LONG))}</p>',
        f'<p class="facts">{escape(_facts(report))}</p>',
        f'<p class="next"><b>Next:</b> {_with_code(report.next_step)}</p>' if report.next_step else "",
        *(f'<p class="warning doubt">⚠ {escape(warning)}</p>' for warning in report.warnings),
        _failure(report),
        f'<div class="charts">{"".join(_charts(report))}</div>',
        _table(report.rows) if report.rows else "",
        _setting(report.setting),
        *(f'<p class="note">{escape(limit)}.</p>' for limit in report.limits),
    ]
    style = _STYLE.read_text(encoding="utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(report.verdict.value)} · {_TITLE}</title><style>{style}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def _facts(report: ParityReport) -> str:
    parts = [f"{report.world_size} processes"]
    if report.device:
        parts[0] += f" on {report.device}"
    if report.steps:
        parts.append(f"{report.steps} optimizer steps")
    if report.torch_version:
        parts.append(f"torch {report.torch_version}")
    parts.append(f"{report.seconds:.0f} s")
    return " · ".join(parts)


def _charts(report: ParityReport) -> list[str]:
    c = report.curves
    both = (("FSDP1", "one"), ("FSDP2", "two"))
    memory, unit = _in_units(c.original_peak, c.rewritten_peak)
    charts = [
        _figure("Loss", "mean over ranks and micro-batches", "loss", _pair(both, c.original_loss, c.rewritten_loss)),
        _figure(
            "Loss difference",
            "relative, the largest of any rank; the floor is the original against itself, from weights one ulp away",
            "relative difference",
            [
                Line("FSDP1 against FSDP2", c.loss_difference, "difference"),
                Line("floor", c.floor_difference, "floor"),
                Line("limit", c.loss_limit, "limit"),
            ],
            log=True,
        ),
        _figure("Gradient norm", "before clipping", "gradient norm", _pair(both, c.original_norm, c.rewritten_norm)),
        _figure(
            "Step time, seconds",
            "slowest rank, without the first step" + ("; says nothing about GPUs" if report.device == "cpu" else ""),
            "seconds",
            _pair(both, [None, *c.original_seconds[1:]], [None, *c.rewritten_seconds[1:]]),
            from_zero=True,
        ),
        _figure(f"Peak CUDA memory, {unit}", "fullest rank", unit, _pair(both, *memory), from_zero=True),
    ]
    return [chart for chart in charts if chart]


def _in_units(*sides: Sequence[float | None]) -> tuple[list[list[float | None]], str]:
    """Bytes as numbers that are neither long nor near zero."""
    largest = max((peak for side in sides for peak in side if peak is not None), default=0.0)
    size, unit = (2**30, "GiB") if largest >= 2**31 else (2**20, "MiB")
    return [[None if peak is None else peak / size for peak in side] for side in sides], unit


def _pair(names: tuple[tuple[str, str], tuple[str, str]], *sides: Sequence[float | None]) -> list[Line]:
    return [Line(name, side, style) for (name, style), side in zip(names, sides, strict=True)]


def _figure(heading: str, what: str, unit: str, lines: list[Line], log: bool = False, from_zero: bool = False) -> str:
    svg = line_chart(lines, unit, log, from_zero)
    if not svg:
        return ""
    key = "".join(f'<i class="{line.style}"></i>{escape(line.name)}' for line in lines)
    return (
        f"<figure><h2>{escape(heading)}</h2>{svg}"
        f'<div class="key">{key}</div><figcaption class="note">{escape(what)}</figcaption></figure>'
    )


def _table(rows: tuple[CheckRow, ...]) -> str:
    head = "<tr><th></th><th>check</th><th>measured</th><th>limit</th><th>verdict</th></tr>"
    return f'<div class="table"><table><thead>{head}</thead><tbody>{"".join(map(_row, rows))}</tbody></table></div>'


def _row(row: CheckRow) -> str:
    detail = f"<small>{escape(shorten(row.detail, _LONG))}</small>" if row.detail else ""
    value = escape(shorten(row.value, _LONG))
    return (
        f'<tr class="{_CLASS[row.mark]}-row"><td>{escape(row.id)}</td>'
        f"<td>{escape(row.title)}{detail}{_meaning(row)}</td>"
        f'<td class="number" data-name="measured">{value}</td>'
        f'<td class="number" data-name="limit">{escape(row.limit)}</td>'
        f'<td class="mark {_CLASS[row.mark]}">{escape(row.mark.value)}</td></tr>'
    )


def _meaning(row: CheckRow) -> str:
    """What the check looks at; and where it is not content, what that mostly comes from, and the whole of its list."""
    about = catalogue().get(row.id)
    if about is None:
        return ""
    told = f"<p>{_with_code(about.compares)}</p><p>{_with_code(about.part('Limit'))}</p>"
    unhappy = row.mark not in (Mark.PASS, Mark.INFO)
    if unhappy:
        causes = "".join(f"<li>{_with_code(cause)}</li>" for cause in about.causes)
        told += f"<p>Usual causes:</p><ul>{causes}</ul><p>{_with_code(about.cure)}</p>"
    if row.items:
        told += f"<p>All {len(row.items)}: {escape(', '.join(row.items[:_MOST]))}</p>"
    return f"<details{' open' if unhappy else ''}><summary>what this is</summary>{told}</details>"


def _setting(setting: Setting) -> str:
    command = ' class="command"'
    lines = (
        f"<dt>{escape(name)}</dt><dd{command if name == 'command' else ''}>{escape(value)}</dd>"
        for name, value in setting.lines
    )
    return f"<dl>{''.join(lines)}</dl>" if setting.lines else ""


def _with_code(text: str) -> str:
    """Escaped, with what stands between backticks as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))


def _failure(report: ParityReport) -> str:
    if report.failure is None:
        return ""
    text = report.failure.traceback or report.failure.log
    return f"<p><b>What to do:</b> {escape(report.failure.hint)}</p><pre>{escape(text)}</pre>"


def _verdict_class(verdict: Verdict) -> str:
    return {Verdict.PASS: "pass", Verdict.FAIL: "fail"}.get(verdict, "doubt")
