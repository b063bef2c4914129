"""For programs: everything, in one object whose keys do not change."""

from __future__ import annotations

import json
from typing import Any

from codemods.api import Level
from fsdp_migrate import __version__

from .view import View

FORMAT_VERSION = 1


def render(view: View) -> str:
    """The report as a JSON object."""
    return json.dumps(_document(view), indent=2, ensure_ascii=False) + "\n"


def _document(view: View) -> dict[str, Any]:
    report = view.report
    return {
        "format": FORMAT_VERSION,
        "tool": {"name": "fsdp-migrate", "version": __version__},
        "command": view.command.value,
        "findings": [
            {
                "rule": finding.rule,
                "name": view.name(finding.rule),
                "level": finding.level.value,
                "path": view.uri(finding.path),
                "line": finding.line,
                "column": finding.column,
                "also": list(finding.also),
                "message": finding.message,
                "hint": finding.hint,
                "through_support": finding in report.through_support,
            }
            for finding in report.findings
        ],
        "changed": [view.uri(change.path) for change in report.changes],
        "errors": [
            {"path": view.uri(error.path), "message": error.message, "hint": error.hint} for error in report.errors
        ],
        "summary": {
            "files": report.files_read,
            "found": report.found,
            **{level.value: report.count(level) for level in Level},
            "ignored": view.ignored,
            "errors": len(report.errors),
            "remains": view.remains.name.lower(),
        },
    }
