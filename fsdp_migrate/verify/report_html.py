"""The report as one page that needs nothing else: to look at, to attach to a pull request."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fsdp_migrate.verify.chart import Line, line_chart
from fsdp_migrate.verify.report import CheckRow, Mark, ParityReport, Verdict

_CLASS = {
    Mark.PASS: "pass",
    Mark.FAIL: "fail",
    Mark.ALLOWED: "doubt",
    Mark.INFO: "info",
    Mark.NOT_AVAILABLE: "doubt",
    Mark.INCONCLUSIVE: "doubt",
}
_TITLE = "FSDP1 → FSDP2 parity"
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5d6b7d; --paper: #fff; --panel: #f5f7fa; --edge: #dde3ea;
  --one: #1f6feb; --two: #d9480f; --floor: #8792a2; --pass: #1a7f37; --fail: #c4262e; --doubt: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e9f0; --soft: #93a1b3; --paper: #10151c; --panel: #18202a;
  --edge: #2b3644; --one: #6cb0ff; --two: #ff9a62; --floor: #77859a; --pass: #4ac26b; --fail: #ff7b72;
  --doubt: #d9a827; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 1180px; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.15rem; margin: 0; color: var(--soft); font-weight: 600; }
h2 { font-size: 1rem; margin: 0 0 .4rem; }
.verdict { font-size: 2rem; font-weight: 700; margin: .2rem 0 0; }
.reason { font-size: 1.05rem; margin: 0 0 .3rem; max-width: 75ch; }
.facts, .note { color: var(--soft); font-size: .9rem; }
.pass { color: var(--pass); } .fail { color: var(--fail); } .doubt { color: var(--doubt); }
.info { color: var(--soft); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 1rem;
  margin: 1.5rem 0; }
figure { margin: 0; padding: .9rem 1rem; background: var(--panel); border: 1px solid var(--edge); border-radius: 8px; }
svg { width: 100%; height: auto; display: block; } svg text { font-size: 11px; fill: var(--soft); }
.grid { stroke: var(--edge); } .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.one { stroke: var(--one); } .two { stroke: var(--two); stroke-dasharray: 6 4; } .floor { stroke: var(--floor); }
.difference { stroke: var(--two); } .limit { stroke: var(--fail); stroke-width: 1.2; stroke-dasharray: 2 3; }
.key { font-size: .85rem; color: var(--soft); } .key i { display: inline-block; width: 1.6em; height: 0; margin: 0 .35em
  .25em .9em; border-top: 2px solid; vertical-align: middle; } .key i:first-child { margin-left: 0; }
i.one { border-color: var(--one); } i.two { border-color: var(--two); border-top-style: dashed; }
i.difference { border-color: var(--two); } i.floor { border-color: var(--floor); }
i.limit { border-color: var(--fail); border-top-style: dotted; }
.warning { margin: .3rem 0 0; }
tr.fail-row td { background: color-mix(in srgb, var(--fail) 9%, transparent); }
tr.doubt-row td { background: color-mix(in srgb, var(--doubt) 9%, transparent); }
.table { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .4rem .7rem .4rem .3rem;
  border-bottom: 1px solid var(--edge); }
th { color: var(--soft); font-weight: 600; font-size: .85rem; }
td.number { font-family: ui-monospace, monospace; font-size: .85rem; } td small { color: var(--soft); display: block; }
td.mark { font-weight: 600; white-space: nowrap; }
pre { background: var(--panel); border: 1px solid var(--edge); border-radius: 8px; padding: 1rem; overflow-x: auto;
  font-size: .82rem; }
"""


def to_html(report: ParityReport) -> str:
    """A whole HTML document, with its style and charts inside and no script."""
    body = [
        f"<h1>{_TITLE}</h1>",
        f'<p class="verdict {_verdict_class(report.verdict)}">{escape(report.verdict.value)}</p>',
        f'<p class="reason">{escape(report.reason)}</p>',
        f'<p class="facts">{escape(_facts(report))}</p>',
        *(f'<p class="warning doubt">⚠ {escape(warning)}</p>' for warning in report.warnings),
        _failure(report),
        f'<div class="charts">{"".join(_charts(report))}</div>',
        _table(report.rows) if report.rows else "",
        *(f'<p class="note">{escape(limit)}.</p>' for limit in report.limits),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(report.verdict.value)} · {_TITLE}</title><style>{_STYLE}</style></head>"
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
    detail = f"<small>{escape(row.detail)}</small>" if row.detail else ""
    return (
        f'<tr class="{_CLASS[row.mark]}-row"><td>{escape(row.id)}</td><td>{escape(row.title)}{detail}</td>'
        f'<td class="number">{escape(row.value)}</td><td class="number">{escape(row.limit)}</td>'
        f'<td class="mark {_CLASS[row.mark]}">{escape(row.mark.value)}</td></tr>'
    )


def _failure(report: ParityReport) -> str:
    if report.failure is None:
        return ""
    text = report.failure.traceback or report.failure.log
    return f"<p><b>What to do:</b> {escape(report.failure.hint)}</p><pre>{escape(text)}</pre>"


def _verdict_class(verdict: Verdict) -> str:
    return {Verdict.PASS: "pass", Verdict.FAIL: "fail"}.get(verdict, "doubt")
