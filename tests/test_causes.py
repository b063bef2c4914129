"""One finding a cause, and not one a line."""

from __future__ import annotations

from pathlib import Path

from codemods.api import Finding, Level
from fsdp_migrate.causes import by_cause
from fsdp_migrate.findings import Report

HERE = Path("/p/train.py")


def found(*findings: tuple[str, str, int], level: Level = Level.MANUAL, path: Path = HERE) -> list[Finding]:
    return [Finding(rule, level, path, line, 1, message, "do it") for rule, message, line in findings]


def test_the_same_in_a_file_is_told_once() -> None:
    report = Report(tuple(found(("FM401", "a", 3), ("FM401", "b", 4), ("FM401", "a", 5), ("FM401", "a", 9))))
    assert [(f.message, f.line) for f in by_cause(report).findings] == [("a (also in lines 5, 9)", 3), ("b", 4)]


def test_many_lines_are_counted() -> None:
    report = Report(tuple(found(*[("FM108", "a", line) for line in range(1, 10)])))
    (once,) = by_cause(report).findings
    assert once.message == "a (also in lines 2, 3, 4, 5, 6 and 3 more)"
    assert once.also == (2, 3, 4, 5, 6, 7, 8, 9)  # whoever reads a report by program wants each


def test_what_is_different_stays() -> None:
    other = Path("/p/other.py")
    findings = [
        *found(("FM401", "a", 3), ("FM404", "a", 3), ("FM501", "a", 3), ("FM501", "a", 4)),
        *found(("FM401", "a", 3), path=other),
        *found(("FM101", "a", 3), ("FM101", "a", 4), level=Level.REWRITTEN),
    ]
    assert by_cause(Report(tuple(findings))).findings == tuple(findings)


def test_what_is_to_be_reviewed_is_told_once_too() -> None:
    findings = found(("FM304", "a", 3), ("FM304", "a", 5), level=Level.REVIEW)
    assert [(f.message, f.also) for f in by_cause(Report(tuple(findings))).findings] == [("a (also in line 5)", (5,))]
    calls = found(("FM101", "call becomes b", 3), ("FM101", "call becomes b", 5), level=Level.REVIEW)
    assert by_cause(Report(tuple(calls))).findings == tuple(calls)  # each is a construct
