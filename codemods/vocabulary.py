"""The words a codemod speaks: what it is handed, and what it gives back.

A codemod is pure. It is handed a parsed file and what the analysis knows about the program, and it
answers with an `Outcome`: text edits and findings. It prints nothing, reads no file, and imports no
other codemod.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Level(str, Enum):
    """How far the tool got with one construct."""

    REWRITTEN = "rewritten"
    """Replaced by FSDP2 code that trains the same."""
    REVIEW = "review"
    """Replaced; what differs does not change what is trained (memory, speed, logging, checkpoint dtype)."""
    MANUAL = "manual"
    """Not replaced, or what trains may differ, or only a person can decide."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One FSDP1 construct, or one broken FSDP2 rule, and what became of it."""

    rule: str
    """`FM` and three digits; `fsdp-migrate explain FM101` tells the rest."""
    level: Level
    path: Path
    line: int
    """1-based, in the file as it was read."""
    column: int
    """1-based, in characters."""
    message: str
    """What is there, in one sentence without a full stop."""
    cure: str = ""
    """What the person should do; empty when there is nothing to do."""


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Replace the characters `[start, end)` of the file as it was read by `text`."""

    start: int
    end: int
    text: str
