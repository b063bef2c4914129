"""`# fsdp-migrate: ignore[FM203]` on a line silences that rule there; one that silences nothing is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from codemods.api import Finding, Level

from .comments import comments
from .findings import Report

CODE = "FM001"
NAME = "unused-ignore"
DOCS = """**What it does.** Finds `# fsdp-migrate: ignore[...]` comments whose rules find nothing on their line.

**Why.** A comment that silences nothing today hides a new problem on that line tomorrow.

## Example

```python
loss.backward()  # fsdp-migrate: ignore[FM203]
```

## Use instead

```python
loss.backward()
```

## Fix safety

The comment is only reported. Removing it changes nothing but what is reported.

## References

- The README of fsdp-migrate, on silencing a finding.
"""


@dataclass(frozen=True, slots=True)
class Ignore:
    """One comment. No codes: every rule on its line."""

    path: Path
    line: int
    column: int
    codes: frozenset[str]

    def silences(self, finding: Finding) -> bool:
        here = finding.path == self.path and finding.line == self.line
        return here and (not self.codes or finding.rule in self.codes)


def suppress(
    report: Report, texts: Mapping[Path, str], enabled: Callable[[str], bool] = lambda code: True
) -> tuple[Report, int]:
    """The report without what comments silence, with the comments that silence nothing; how many were silenced.

    `enabled` tells whether a rule ran at all: a comment for one that did not run cannot be called unused.
    """
    ignores = [ignore for path, text in texts.items() for ignore in _ignores(path, text)]
    if not ignores:
        return report, 0
    silenced = {
        finding
        for finding in report.findings
        if finding.rule != CODE and any(ignore.silences(finding) for ignore in ignores)
    }
    unused = [finding for ignore in ignores for finding in _unused(ignore, report, enabled)] if enabled(CODE) else []
    kept = [finding for finding in report.findings if finding not in silenced]
    findings = sorted([*kept, *unused], key=lambda each: (each.path, each.line, each.column, each.rule))
    return replace(report, findings=tuple(findings)), len(silenced)


def _ignores(path: Path, text: str) -> Iterator[Ignore]:
    for comment in comments(text, "ignore"):
        yield Ignore(path, comment.line, comment.column, comment.codes)


def _unused(ignore: Ignore, report: Report, enabled: Callable[[str], bool]) -> Iterator[Finding]:
    there = {finding.rule for finding in report.findings if ignore.silences(finding)}
    if not ignore.codes and not there:
        yield _finding(ignore, "this comment silences nothing")
    for code in sorted(ignore.codes - there):
        if enabled(code):
            yield _finding(ignore, f"this comment silences {code}, which is not found here")


def _finding(ignore: Ignore, message: str) -> Finding:
    return Finding(CODE, Level.REVIEW, ignore.path, ignore.line, ignore.column, message, "remove it from the comment")
