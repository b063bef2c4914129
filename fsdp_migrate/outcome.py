"""What is told of a run: its findings in order, and what was not written."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from codemods import leftover
from codemods.api import Finding, Level
from codemods.plan import Plan

from .edit.changes import Written
from .findings import FileError, Report
from .fix import Fixes
from .pyanalysis.program import Program

_FAILED = "see the error: nothing of this program was written"


def obstacle(plan: Plan) -> str | None:
    """Why nothing at all is written: a program that is FSDP1 in one place and FSDP2 in another trains wrongly."""
    if not plan.wraps:
        return "name the script that wraps the model too, so that both are migrated together"
    if not plan.migrates:
        return "mend the constructor call that is left as it is, then run again"
    return None


def make_report(program: Program, plan: Plan, fixes: Fixes, written: Written, lint: Set[Finding]) -> Report:
    """The report of a run, `lint` being what was found in FSDP2 code."""
    why = obstacle(plan)
    findings = {
        _not_written(each, why or _FAILED) if why or each.path in written.failed else each for each in fixes.findings
    }
    errors = tuple(
        FileError(path, message, "mend the syntax error, or leave the file out with --exclude")
        for path, message in sorted(program.errors.items())
    )
    ordered = sorted(map(_by_place, {*findings, *lint}), key=lambda f: (f.path, f.line, f.column, f.rule, f.message))
    return Report(
        tuple(ordered),
        written.changes,
        (*errors, *written.errors),
        len(program.texts),
        frozenset(map(_by_place, fixes.through_support)),
    )


def _by_place(finding: Finding) -> Finding:
    """Without its node, which would keep the tree of its file."""
    return replace(finding, about=None)


def _not_written(finding: Finding, hint: str) -> Finding:
    if finding.level in (Level.MANUAL, Level.KEPT) or leftover.is_about_data(finding):
        return finding
    message = finding.message.replace(" becomes ", " would become ")
    return replace(finding, level=Level.MANUAL, message=f"not rewritten: {message}", hint=hint)
