"""For people: one line a finding, what to do about several in a row said once, and a last line that always counts.

Plain and stable by default, so that it can be compared and searched; colour only where somebody looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from codemods.api import Finding, Level
from fsdp_migrate.findings import FileError

from .nothing import not_done, nothing_found
from .view import NEEDS_NOBODY, Command, View, is_construct, is_fsdp2_lint

Paint = Callable[[str, str], str]
Detail = Literal["full", "concise", "quiet"]

STYLES = {Level.REWRITTEN: "green", Level.REVIEW: "yellow", Level.MANUAL: "bold red", Level.KEPT: "blue"}


def plain(text: str, style: str) -> str:
    """The paint for files, pipes and tests: none."""
    return text


def coloured(text: str, style: str) -> str:
    """The paint for terminals."""
    from rich.style import Style

    return Style.parse(style).render(text)


def render(view: View, detail: Detail = "full", paint: Paint = plain, done: Sequence[str] = ()) -> str:
    """Findings, then what was `done` with files, then the line that counts. Quiet leaves out what needs nobody."""
    lines: list[str] = []
    hint = ""
    for finding in view.report.findings:
        if detail == "quiet" and finding.level in NEEDS_NOBODY and view.command is Command.REWRITE:
            continue
        lines.append(_line(view, finding, paint))
        if detail != "concise" and finding.hint not in {"", hint}:
            lines.append(f"    {finding.hint}")
        hint = finding.hint
    return "\n".join([*lines, *([] if detail == "quiet" else done), closing(view)]) + "\n"


def error_line(view: View, error: FileError, paint: Paint) -> str:
    """One line for standard error: what is wrong with a file, and what to do."""
    head = f"{paint(view.shown(error.path), 'bold')}: {paint('error', 'bold red')} {error.message}"
    return f"{head}\n    {error.hint}" if error.hint else head


def closing(view: View) -> str:
    """The last line: what was found and what became of it; for nothing, what that means."""
    if view.command is Command.UPGRADE:
        said = [_upgrades(view)]
    else:
        said = _counts(view) if view.report.findings else [_nothing(view)]
    return " ".join(filter(None, (*said, _ignored(view), not_done(len(view.report.errors)))))


def _line(view: View, finding: Finding, paint: Paint) -> str:
    place = f"{view.shown(finding.path)}:{finding.line}:{finding.column}"
    word = paint(view.word(finding.level), STYLES[finding.level])
    return f"{paint(place, 'bold')}: {paint(finding.rule, 'cyan')} {word} {' '.join(finding.message.split())}"


def _counts(view: View) -> list[str]:
    findings = view.report.findings
    constructs, contract = sum(map(is_construct, findings)), sum(map(is_fsdp2_lint, findings))
    broken = sum(is_fsdp2_lint(finding) and finding.level is Level.MANUAL for finding in findings)
    said = [_constructs(view)] if constructs else []
    if broken:
        verb = "breaks" if broken == 1 else "break"
        said.append(f"Found {broken} {_plural(broken, 'place')} that {verb} the FSDP2 contract.")
    if contract > broken:
        said.append(f"{contract - broken} {_plural(contract - broken, 'hint')} on FSDP2 code.")
    unused = sum(finding.rule == "FM001" for finding in findings)
    if unused:
        said.append(f"Found {unused} unused ignore {_plural(unused, 'comment')}.")
    if not constructs and any(finding.rule == "FM002" for finding in findings):
        said.append("Found no FSDP1 in the files that are imported by their names; others may be loaded at run time.")
    return said


def _constructs(view: View) -> str:
    levels = [finding.level for finding in view.report.findings if is_construct(finding)]
    done, review, manual, kept = (levels.count(level) for level in Level)
    found = f"Found {len(levels)} FSDP1 {_plural(len(levels), 'construct')}"
    review_part = f"{review} {'needs' if review == 1 else 'need'} review"
    manual_part = f"{manual} {'needs' if manual == 1 else 'need'} you"
    through = sum(finding in view.report.through_support for finding in view.report.findings)
    kept_part = f", {kept} kept beside FSDP2" if kept else ""
    how = f" ({through} through fsdp2_support.py)" if through else ""
    if view.command is Command.REWRITE:
        return f"{found}: {done} rewritten{how}, {review_part}, {manual_part}{kept_part}."
    return f"{found}: `fsdp-migrate rewrite` can do {done}, {review_part}, {manual_part}{kept_part}."


def _upgrades(view: View) -> str:
    levels = [finding.level for finding in view.report.findings]
    if not levels:
        return "Nothing to upgrade: what was asked for is there already."
    done, review, manual, _ = (levels.count(level) for level in Level)
    review_part = f"{review} {'needs' if review == 1 else 'need'} review"
    manual_part = f"{manual} {'needs' if manual == 1 else 'need'} you"
    found = f"Found {len(levels)} {_plural(len(levels), 'place')} to upgrade"
    return f"{found}: {done} upgraded, {review_part}, {manual_part}."


def _nothing(view: View) -> str:
    mention = f"{view.shown(view.mention[0])}:{view.mention[1]}" if view.mention else ""
    return nothing_found(view.report.files_read, view.remains, mention, len(view.report.errors))


def _ignored(view: View) -> str:
    return f"{view.ignored} ignored." if view.ignored else ""


def _plural(number: int, word: str) -> str:
    return word if number == 1 else word + "s"
