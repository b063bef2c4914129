"""One finding a cause: what a file says several times over is told once, with the lines where it stands."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from codemods.api import Finding, Level

from .findings import Report
from .render.view import is_construct

_SHOWN = 5
_ONCE = (Level.MANUAL, Level.REVIEW, Level.KEPT)


def by_cause(report: Report) -> Report:
    """The report with what needs a person, is to be reviewed, or is kept, for one reason in one file as one finding."""
    places: dict[Finding, list[int]] = defaultdict(list)
    first: dict[tuple[object, ...], Finding] = {}
    for each in report.findings:
        if _is_told_once(each):
            cause = (each.path, each.rule, each.message, each.hint)
            places[first.setdefault(cause, each)].append(each.line)
    if all(len(lines) == 1 for lines in places.values()):
        return report
    once = (
        _of_all(each, sorted(set(places[each][1:]))) if each in places else each
        for each in report.findings
        if each in places or not _is_told_once(each)
    )
    return replace(report, findings=tuple(once))


def _is_told_once(each: Finding) -> bool:
    """What was rewritten is told for each construct, whatever is to be reviewed of it."""
    is_rewritten = each.level is Level.REVIEW and " becomes " in each.message
    return each.level in _ONCE and is_construct(each) and not is_rewritten


def _of_all(first: Finding, others: list[int]) -> Finding:
    return replace(first, message=first.message + _also(others), also=tuple(others))


def _also(others: list[int]) -> str:
    if not others:
        return ""
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    word = "line" if len(others) == 1 else "lines"
    return f" (also in {word} {', '.join(map(str, others[:_SHOWN]))}{more})"
