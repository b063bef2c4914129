"""For the description of a pull request: per program, what became of each place, and what a person still has to do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from codemods.api import Finding, Level

from .text import closing
from .view import Command, View

NAMED = 3
"""So many scripts are named in a heading; of more, the folder."""


def render(view: View) -> str:
    """A heading a program; what needs a person first, as boxes to tick, then what was done and how."""
    lines = ["## FSDP1 to FSDP2", "", closing(view)]
    for files in view.programs:
        findings = [finding for finding in view.report.findings if finding.path in files]
        if findings:
            lines += ["", f"### {_title(view, files)}"]
            for section in _sections(view, findings):
                lines += ["", *section]
            if view.command is Command.REWRITE:
                lines += ["", *_proof(view, files)]
    if view.report.errors:
        lines += ["", "**Not read**", ""]
        lines += [f"- [ ] `{view.uri(error.path)}`: {error.message}. {error.hint}" for error in view.report.errors]
    return "\n".join(lines) + "\n"


def _sections(view: View, findings: Sequence[Finding]) -> Iterator[list[str]]:
    done = [finding for finding in findings if finding.level is Level.REWRITTEN]
    verb = "Rewritten" if view.command is Command.REWRITE else "Can be rewritten"
    at_run_time = [finding for finding in done if finding in view.report.through_support]
    idiomatic = [finding for finding in done if finding not in view.report.through_support]
    yield from _section("Needs you", [f for f in findings if f.level is Level.MANUAL], view, _task)
    yield from _section("To review", [f for f in findings if f.level is Level.REVIEW], view, _task)
    yield from _section(f"{verb} as FSDP2 code", idiomatic, view, _item)
    yield from _section(f"{verb} through `fsdp2_support.py`", at_run_time, view, _item)
    kept = [finding for finding in findings if finding.level is Level.KEPT]
    yield from _section("Kept beside FSDP2", kept, view, _item)


def _section(
    title: str, findings: Sequence[Finding], view: View, line: Callable[[View, Finding], str]
) -> Iterator[list[str]]:
    if findings:
        yield [f"**{title}** ({len(findings)})", "", *(line(view, finding) for finding in findings)]


def _task(view: View, finding: Finding) -> str:
    hint = f"\n  {finding.hint}" if finding.hint else ""
    return f"- [ ] {_place(view, finding)} {finding.message}{hint}"


def _item(view: View, finding: Finding) -> str:
    return f"- {_place(view, finding)} {finding.message}"


def _place(view: View, finding: Finding) -> str:
    return f"`{view.uri(finding.path)}:{finding.line}` {finding.rule}"


def _proof(view: View, files: Sequence[Path]) -> Iterator[str]:
    scripts = [path for path in files if path in view.scripts]
    if len(scripts) <= NAMED and any(change.path in files for change in view.report.changes):
        yield "Proof that it trains the same:"
        yield from (f"`fsdp-migrate check {view.uri(path)} --run-gpus N -- ARGUMENTS`" for path in scripts)


def _title(view: View, files: Sequence[Path]) -> str:
    """The scripts that start the program: those of its files that none of its files imports."""
    scripts = [path for path in files if path in view.scripts]
    if 0 < len(scripts) <= NAMED:
        return ", ".join(f"`{view.uri(path)}`" for path in scripts)
    return f"`{view.uri(Path(os.path.commonpath([path.parent for path in scripts or files])))}/`"
