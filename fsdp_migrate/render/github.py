"""Workflow commands, which GitHub Actions shows as annotations on the changed lines."""

from __future__ import annotations

from codemods.api import Level

from .view import View

KINDS = {Level.REWRITTEN: "warning", Level.REVIEW: "warning", Level.MANUAL: "error", Level.KEPT: "notice"}


def render(view: View) -> str:
    """One command a finding or unreadable file."""
    lines = []
    for finding in view.report.findings:
        text = f"{finding.message}. {finding.hint}" if finding.hint else finding.message
        place = f"file={_property(view.uri(finding.path))},line={finding.line},col={finding.column}"
        title = _property(f"{finding.rule} {view.name(finding.rule)}")
        lines.append(f"::{KINDS[finding.level]} {place},title={title}::{_data(text)}")
    for error in view.report.errors:
        text = f"{error.message}. {error.hint}" if error.hint else error.message
        lines.append(f"::error file={_property(view.uri(error.path))},title=fsdp-migrate::{_data(text)}")
    return "".join(line + "\n" for line in lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
