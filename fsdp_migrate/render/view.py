"""What every renderer is handed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from codemods.api import Finding, Level
from codemods.leftover import is_about_data
from fsdp_migrate.findings import Report

from .nothing import Remains, shown


class Command(Enum):
    """What was asked for: it decides what a `rewritten` finding means."""

    REWRITE = "rewrite"
    CHECK = "check"
    UPGRADE = "upgrade"


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """What a renderer says about a rule."""

    code: str
    name: str
    docs: str


@dataclass(frozen=True, slots=True)
class View:
    """One run, ready to be shown. Paths are shown relative to `folder`."""

    report: Report
    command: Command
    folder: Path
    remains: Remains = Remains.NOTHING
    mention: tuple[Path, int] | None = None
    """Where FSDP1 is named though nothing was found: file and line."""
    ignored: int = 0
    """Findings that a comment in the code or `--select`/`--ignore` keeps out of the report."""
    rules: Mapping[str, RuleInfo] = field(default_factory=dict)
    programs: Sequence[Sequence[Path]] = ()
    """The files that were read, split where nothing connects them."""
    scripts: frozenset[Path] = frozenset()
    """Those that a program starts with: no other file imports them."""

    def shown(self, path: Path) -> str:
        """A path as the user would type it."""
        return shown(path, self.folder)

    def uri(self, path: Path) -> str:
        """The same with forward slashes, for machines."""
        return self.shown(path).replace(os.sep, "/")

    def name(self, rule: str) -> str:
        return self.rules[rule].name if rule in self.rules else rule

    def word(self, level: Level) -> str:
        """The level as this command means it: for the gate, `rewritten` says what `rewrite` would do."""
        if self.command is Command.CHECK and level is Level.REWRITTEN:
            return "rewritable"
        if self.command is Command.UPGRADE and level is Level.REWRITTEN:
            return "upgraded"
        return level.value


NEEDS_NOBODY = frozenset({Level.REWRITTEN, Level.KEPT})
"""Levels of what a rewrite leaves for nobody to do."""


def is_construct(finding: Finding) -> bool:
    """FM1xx to FM4xx are about FSDP1 code. FM0xx is about comments for this tool, FM5xx and FM6xx about FSDP2 code."""
    return finding.rule[2:3] in "1234"


def is_fsdp2_lint(finding: Finding) -> bool:
    """Whether a finding is about FSDP2 used wrongly."""
    return finding.rule.startswith("FM5")


def exit_code(view: View, strict: bool) -> int:
    """0: nothing to do. 1: something needs a person. 2: a file could not be read or written."""
    if view.report.errors:
        return 2
    return int(any(_fails(finding, view.command, strict) for finding in view.report.findings))


def _fails(finding: Finding, command: Command, strict: bool) -> bool:
    if finding.level is Level.MANUAL or strict:
        return finding.level not in NEEDS_NOBODY or command is Command.CHECK
    # For the gate, FSDP1 that could be rewritten is FSDP1 that is left; settings that stay and advice on FSDP2 are not.
    return command is Command.CHECK and not is_fsdp2_lint(finding) and not is_about_data(finding)
