"""SARIF 2.1.0, which code scanning of GitHub, GitLab and Azure DevOps reads."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from codemods.api import Finding, Level
from fsdp_migrate import __version__
from fsdp_migrate.findings import FileError

from .view import View

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {Level.REWRITTEN: "warning", Level.REVIEW: "warning", Level.MANUAL: "error", Level.KEPT: "note"}


def render(view: View) -> str:
    """The report as a SARIF log with one run."""
    codes = sorted({finding.rule for finding in view.report.findings})
    run = {
        "tool": {
            "driver": {
                "name": "fsdp-migrate",
                "version": __version__,
                "rules": [_rule(view, code) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(view, finding, codes.index(finding.rule)) for finding in view.report.findings],
        "invocations": [
            {
                "executionSuccessful": not view.report.errors,
                "toolExecutionNotifications": [_notification(view, error) for error in view.report.errors],
            }
        ],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _rule(view: View, code: str) -> dict[str, Any]:
    rule: dict[str, Any] = {"id": code, "name": view.name(code)}
    if code in view.rules:
        docs = view.rules[code].docs
        rule["help"] = {"text": docs, "markdown": docs}
    return rule


def _result(view: View, finding: Finding, index: int) -> dict[str, Any]:
    text = f"{finding.message}. {finding.hint}" if finding.hint else finding.message
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": LEVELS[finding.level],
        "message": {"text": text},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(view.uri(finding.path))},
                    "region": {"startLine": finding.line, "startColumn": finding.column},
                }
            }
        ],
    }


def _notification(view: View, error: FileError) -> dict[str, Any]:
    return {
        "level": "error",
        "message": {"text": f"{error.message}. {error.hint}" if error.hint else error.message},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": quote(view.uri(error.path))}}}],
    }
