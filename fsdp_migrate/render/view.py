"""What every renderer is handed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from codemods.vocabulary import Finding, Level
from fsdp_migrate.findings import Report

from .nothing import Remains


class Command(Enum):
    """What was asked for: it decides what a `rewritten` finding means."""

    REWRITE = "rewrite"
    CHECK = "check"


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

    def shown(self, path: Path) -> str:
        """A path as the user would type it: relative inside the current folder, absolute elsewhere."""
        relative = os.path.relpath(path, self.folder)
        return str(path) if relative.startswith("..") else relative

    def uri(self, path: Path) -> str:
        """The same with forward slashes, for machines."""
        return self.shown(path).replace(os.sep, "/")

    def name(self, rule: str) -> str:
        return self.rules[rule].name if rule in self.rules else rule

    def word(self, level: Level) -> str:
        """The level as this command means it: for the gate, `rewritten` says what `rewrite` would do."""
        if self.command is Command.CHECK and level is Level.REWRITTEN:
            return "rewritable"
        return level.value


def is_fsdp2_contract(finding: Finding) -> bool:
    """FM5xx holds for any FSDP2 code: such a finding is no FSDP1 construct."""
    return finding.rule.startswith("FM5")
