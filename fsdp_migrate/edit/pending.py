"""What the rules want of one file, before it is written."""

from __future__ import annotations

from dataclasses import dataclass, field

from codemods.api import Edit, Import, Raise


@dataclass
class Pending:
    """What the rules want of one file."""

    edits: dict[Edit, str] = field(default_factory=dict)
    """The rule that each one comes from."""
    imports: set[Import] = field(default_factory=set)
    raises: list[Raise] = field(default_factory=list)
