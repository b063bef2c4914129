"""What one run of the tool found and did, and the exit code that follows from it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from codemods.api import Finding, Level


@dataclass(frozen=True, slots=True)
class Change:
    """One file to be written: `before` is None for a file that is new (`fsdp2_support.py`)."""

    path: Path
    before: str | None
    after: str


@dataclass(frozen=True, slots=True)
class FileError:
    """A file that could not be read or parsed; the rest of the run goes on without it."""

    path: Path
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a renderer needs. `findings` are sorted by path, line, column and rule."""

    findings: tuple[Finding, ...] = ()
    changes: tuple[Change, ...] = ()
    errors: tuple[FileError, ...] = ()
    files_read: int = 0
    through_support: frozenset[Finding] = frozenset()
    """What was rewritten by calls of `fsdp2_support.py`, because only run time knows a value."""

    def count(self, level: Level) -> int:
        return Counter(finding.level for finding in self.findings)[level]

    @property
    def found(self) -> int:
        """FSDP1 constructs seen, whatever became of them."""
        return len(self.findings)
