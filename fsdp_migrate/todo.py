"""`# fsdp-migrate: todo[FM205] ...` above a statement: what `rewrite` left to a person there, and `check` still finds.

Where the code itself still names FSDP1, `check` finds it without a comment. Elsewhere FSDP2 code would look finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import wrap

import libcst as cst

from codemods.api import Context, Edit, Finding, Level
from codemods.plan import PlannedContext
from codemods.reading.edits.call_layout import gone_around, line_above
from codemods.reading.edits.layout import statement_start

from .comments import CONTINUED, Comment, comments
from .findings import Report
from .render.view import is_construct

VERB = "todo"
_HINT = "do it, then remove this comment"


def marks(file: PlannedContext, findings: Iterable[Finding]) -> Iterator[Edit]:
    """The comments for what is left to a person in one file; none where an earlier run has put one."""
    there = list(comments(file.text, VERB))
    made: set[tuple[int, str]] = set()
    told: set[tuple[cst.CSTNode, str, str]] = set()
    for finding in sorted(findings, key=lambda each: (each.line, each.column, each.rule)):
        if finding.level is not Level.MANUAL or finding.about is None or not is_construct(finding):
            continue
        start, first = statement_start(file, finding.about)
        if (first, finding.rule) in made or any(_is_about(comment, finding, file, first) for comment in there):
            continue
        made.add((first, finding.rule))
        cause = (file.scope(finding.about), finding.rule, finding.hint or finding.message)
        what = "as above" if cause in told else cause[-1]
        told.add(cause)
        indent = file.text[first:start]
        lines = wrap(
            f"# fsdp-migrate: {VERB}[{finding.rule}] {what}",
            file.width - len(indent),
            subsequent_indent=CONTINUED,
            break_long_words=False,
            break_on_hyphens=False,
        )
        if gone_around(finding.about, file):
            yield line_above(file, finding.about, *lines)
        else:
            yield Edit(first, first, "".join(f"{indent}{line}{file.newline}" for line in lines))


def _is_about(comment: Comment, finding: Finding, file: Context, first: int) -> bool:
    """Whether a comment stands between the start of the statement, with what stands on it, and the finding."""
    return finding.rule in comment.codes and file.text.count("\n", 0, first) + 1 <= comment.line <= finding.line


def with_todos(report: Report, texts: Mapping[Path, str]) -> Report:
    """The report with what earlier runs left to a person, as long as it is not done."""
    left = [todo for path, text in texts.items() for todo in _findings(path, text, report.findings)]
    found = sorted([*report.findings, *left], key=lambda f: (f.path, f.line, f.column, f.rule, f.message))
    return replace(report, findings=tuple(found)) if left else report


def _findings(path: Path, text: str, known: Iterable[Finding]) -> Iterator[Finding]:
    lines = text.split("\n")
    for comment in comments(text, VERB):
        below = next((i for i in range(comment.line, len(lines) + 1) if not _is_comment(lines[i - 1])), comment.line)
        there = {each.rule for each in known if each.path == path and comment.line <= each.line <= below}
        for rule in sorted(comment.codes - there):
            message = f"left to a person: {comment.text or 'what rewrite reported here'}"
            yield Finding(rule, Level.MANUAL, path, comment.line, comment.column, message, _HINT)


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")
